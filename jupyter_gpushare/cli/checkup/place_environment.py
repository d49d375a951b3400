"""Looks at whether this process runs in a container, as it shows from inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jupyter_gpushare.client.paths import RUNTIME_DIR

from .facts import APPTAINER, DOCKER, KUBERNETES, PlaceFacts

_ENGINES_FILES = (".dockerenv", "run/.containerenv")
_ENGINES = ("docker", "podman", "oci")


def place_facts(environ: Mapping[str, str], *, root: Path = Path("/")) -> PlaceFacts:
    return PlaceFacts(container=_container(environ, root), is_led=bool(environ.get(RUNTIME_DIR)))


def _container(environ: Mapping[str, str], root: Path) -> str:
    """Of several, one in another, the one that is seen from within."""
    if environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER"):
        return APPTAINER
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return KUBERNETES
    if environ.get("container") in _ENGINES or any((root / f).exists() for f in _ENGINES_FILES):
        return DOCKER
    return ""
