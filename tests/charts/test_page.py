"""docs/kubernetes.md: what it says to paste is right."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from traitlets.config import Config

from jupyter_gpushare.cli.main import make_parser
from jupyter_gpushare.core.configuration.values import check_together
from jupyter_gpushare.kubelet.seats import RESOURCE
from tests.charts.chart import validator_of
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "kubernetes.md"


def blocks() -> list[dict[str, Any]]:
    """Its YAML, in order; those in a list are indented."""
    found = re.findall(r"^( *)```yaml\n(.*?)^ *```", PAGE.read_text(), re.M | re.S)
    return [yaml.safe_load(re.sub(f"^{indent}", "", text, flags=re.M)) for indent, text in found]


def block_with(name: str) -> dict[str, Any]:
    (found,) = [each for each in blocks() if name in each]
    return found


@pytest.mark.promise(
    "kubernetes-3", "The values of docs/kubernetes.md can be pasted: the chart, the hub and quotas"
)
def test_the_values_of_the_chart() -> None:
    """The schema takes them, and the scheduler its settings."""
    given = block_with("seats")
    assert validator_of(given) == []
    assert given["image"]["repository"]
    check_together(given["scheduler"]["settings"])


@pytest.mark.promise("kubernetes-3")
def test_the_values_of_zero_to_jupyterhub() -> None:
    """They are run as Zero to JupyterHub does: first the profiles, then the lines of ours."""
    given = block_with("singleuser")
    c = Config()
    c.KubeSpawner.profile_list = given["singleuser"]["profileList"]
    (lines,) = given["hub"]["extraConfig"].values()
    exec(compile(lines, "extraConfig", "exec"), {"c": c})
    none, shared = c.KubeSpawner.profile_list
    assert shared["display_name"] == "Shared GPU"
    limits = shared["kubespawner_override"]["extra_resource_limits"]
    assert limits == {"nvidia.com/gpu": "1", RESOURCE: "1"}
    assert "extra_resource_limits" not in none.get("kubespawner_override", {})


@pytest.mark.promise("kubernetes-3")
def test_the_quota() -> None:
    """It names our resource, as Kubernetes names requests of one."""
    assert list(block_with("kind")["spec"]["hard"]) == [f"requests.{RESOURCE}"]


def test_its_verbs_are_there() -> None:
    """Each `jupyter-gpushare` or `jupyter gpushare` of the page is one."""
    verbs = set(re.findall(r"jupyter[- ]gpushare ((?!scheduler)[a-z-]+)", PAGE.read_text()))
    helped = make_parser().format_help()
    assert verbs
    assert all(re.search(rf"^ +{verb} ", helped, re.M) for verb in verbs), verbs
