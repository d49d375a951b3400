"""The alert rules and the dashboard for administrators: they ask for what there is, and say what to
do. Whether a real Prometheus answers them, tests/cluster/test_prometheus.py shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import yaml

from jupyter_gpushare.view.metrics import NAMES
from tests.support.paths import ROOT

RULES = ROOT / "deploy" / "prometheus" / "gpushare.rules.yaml"
RULES_TEST = ROOT / "tests" / "view" / "figures" / "rules_test.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "gpushare.json"


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def queries() -> Iterator[tuple[str, str]]:
    """Of the dashboard, with the title of the panel."""
    for panel in panels():
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def named_in(expression: str) -> set[str]:
    return set(re.findall(r"\bgpushare_\w+", expression))


@pytest.mark.promise(
    "packaging-12",
    "Alert rules and a dashboard come with the package, and name only figures that the view has",
)
def test_they_name_what_there_is() -> None:
    """Each expression has a figure of ours, and none that is gone."""
    expressions = [*(rule["expr"] for rule in alerts()), *(query for _, query in queries())]
    for expression in expressions:
        assert named_in(expression), expression
        assert named_in(expression) <= set(NAMES), expression


@pytest.mark.promise("packaging-12")
def test_each_alert_says_what_to_do() -> None:
    """And each has a test that fires it, and one in which it stays silent."""
    told = yaml.safe_load(RULES_TEST.read_text())["tests"]
    checked = [
        (each["alertname"], bool(each["exp_alerts"]))
        for test in told
        for each in test["alert_rule_test"]
    ]
    for rule in alerts():
        assert rule["annotations"].keys() == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert {(rule["alert"], True), (rule["alert"], False)} <= set(checked), rule["alert"]


@pytest.mark.promise("packaging-12")
def test_the_dashboard_has_a_source_to_choose() -> None:
    """Each panel has a meaning, a place of its own, and the source that was chosen."""
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert len({panel["id"] for panel in panels()}) == len(panels()) >= 10
    for panel in panels():
        assert panel["title"] and panel["description"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}
    for one, other in combinations((panel["gridPos"] for panel in panels()), 2):
        apart = (one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]) or (
            one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        )
        assert apart, "two panels lie upon each other"
