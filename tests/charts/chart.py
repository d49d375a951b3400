"""The chart: its files, and what Helm makes of them. Helm comes from PyPI (the extra `charts`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

CHART = ROOT / "charts" / "gpushare"
SMALLEST: dict[str, Any] = {
    "image": {"repository": "registry.example/gpushare"},
    "hub": {"apiUrl": "http://hub:8081/hub/api"},
}
"""What nobody can guess for an administrator."""
EVERYTHING: dict[str, Any] = {
    **SMALLEST,
    "imagePullSecrets": [{"name": "pull"}],
    "hostPID": True,
    "view": {"url": "https://hub.example/services/gpushare-view/", "caConfigMap": "authority"},
    "seats": 3,
    "scheduler": {
        "settings": {"quantum_s": "5s", "overdue_policy": "kill", "credit_s": 2},
        "args": ["--journal-days=3"],
    },
    "nvml": {
        "visibleDevices": "/var/run/nvidia-container-devices",
        "extraVolumes": [{"name": "none", "hostPath": {"path": "/dev/null"}}],
        "extraVolumeMounts": [
            {"name": "none", "mountPath": "/var/run/nvidia-container-devices/all"}
        ],
    },
    "node": {"kubeletDir": "/var/snap/kubelet"},
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podAnnotations": {"a": "b"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "admissionPolicy": {"enabled": True, "namespaces": ["jhub", "labs"]},
    "networkPolicy": {
        "hub": {"namespaceSelector": {"matchLabels": {"hub": "yes"}}},
        "view": {"port": 8443, "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
    },
}


def values() -> dict[str, Any]:
    """Those that the chart has by itself."""
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    assert isinstance(found, dict)
    return found


def schema() -> dict[str, Any]:
    found = json.loads((CHART / "values.schema.json").read_text())
    assert isinstance(found, dict)
    return found


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values."""
    found = dict(base)
    for name, value in over.items():
        there = found.get(name)
        both = isinstance(value, dict) and isinstance(there, dict)
        found[name] = merged(there, value) if both and isinstance(there, dict) else value
    return found


class CannotRender(Exception):
    """What Helm says."""


def rendered(given: dict[str, Any], *, name: str = "gpushare") -> list[dict[str, Any]]:
    """The objects, as `helm template` makes them. Raises CannotRender."""
    return list(_objects(given, name))


def _objects(given: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    import helm_python

    chart = helm_python.Chart.load(str(CHART))
    try:
        files = chart.render(given, name=name, namespace="jhub")
    except helm_python.HelmError as error:
        raise CannotRender(str(error)) from error
    finally:
        chart.close()
    for path, text in sorted(files.items()):
        if path.endswith(".yaml"):
            yield from (each for each in yaml.safe_load_all(text) if each)


def the(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def container(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    pod = the(objects, "DaemonSet")["spec"]["template"]["spec"]
    (found,) = [each for each in pod["containers"] if each["name"] == name]
    return dict(found)


def validator_of(given: dict[str, Any]) -> list[str]:
    """What the schema of values says against these, merged into the chart's own; without Helm."""
    import jsonschema

    checker = jsonschema.Draft7Validator(schema())
    return [error.message for error in checker.iter_errors(merged(values(), given))]


def fenced(page: Path, language: str) -> list[str]:
    """The blocks of code of this language in a page."""
    blocks = page.read_text().split("```")[1::2]
    return [each.partition("\n")[2] for each in blocks if each.partition("\n")[0] == language]
