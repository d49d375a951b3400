"""The chart's values, without Helm."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from jupyter_gpushare.cli.kubelet_plugin import LIBRARY_DIR, RUNTIME_DIR
from jupyter_gpushare.kubelet.registration import UNHEALTHY_AFTER_S
from jupyter_gpushare.kubelet.seats import SEATS_MAX
from jupyter_gpushare.version import __version__
from tests.charts.chart import CHART, EVERYTHING, SMALLEST, schema, validator_of, values


@pytest.mark.promise(
    "kubernetes-7", "The chart's values have a schema, which refuses what is misspelt or too much"
)
@pytest.mark.parametrize("given", [{}, SMALLEST, EVERYTHING], ids=["none", "smallest", "all"])
def test_good_values(given: dict[str, Any]) -> None:
    """Its own values, and each that an administrator may give."""
    assert validator_of(given) == []


@pytest.mark.promise("kubernetes-7")
@pytest.mark.parametrize(
    "given",
    [
        {"sets": 8},
        {"seats": 0},
        {"seats": SEATS_MAX + 1},
        {"seats": "8"},
        {"hostPid": True},
        {"hostPID": "yes"},
        {"hub": {"apiUrl": "hub:8081"}},
        {"hub": {"apiUrl": "http://hub:8081"}},
        {"node": {"runtimeDir": "run"}},
        {"view": {"url": "http://hub/services/gpushare-view/"}},
        {"view": {"url": "https://me:secret@hub/"}},
        {"view": {"uri": ""}},
        {"view": {"enabled": "yes"}},
        {"view": {"baseUrl": "/base"}},
        {"view": {"hubSecret": {"name": ""}}},
        {"scheduler": {"args": ["journal-days=3"]}},
        {"scheduler": {"settings": {"weights": ["ann"]}}},
        {"podMonitor": {"interval": "30"}},
        {"admissionPolicy": {"resourcePrefix": "x') || ('"}},
        {"nodeSelector": {"gpu": True}},
    ],
    ids=str,
)
def test_bad_values(given: dict[str, Any]) -> None:
    """One mistake is enough."""
    assert validator_of(given)


def test_the_schema_has_each_value() -> None:
    """And no more, but `global`, which Helm has for charts in charts."""
    assert set(schema()["properties"]) - {"global"} == set(values())


def test_the_charts_numbers_are_the_packages() -> None:
    """Written twice, and the same: the version, directories and the time without a scheduler."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    node = values()["node"]
    assert (node["runtimeDir"], node["libraryDir"]) == (str(RUNTIME_DIR), str(LIBRARY_DIR))
    assert values()["plugin"]["unhealthyAfterSeconds"] == UNHEALTHY_AFTER_S
