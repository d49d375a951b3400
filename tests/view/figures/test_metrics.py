"""What Prometheus reads of the view."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpushare.reports.format import DEVICES_MAX, WAIT_BOUNDS_S, ReportError, Waits
from jupyter_gpushare.view.fleet import SILENT_S, Fleet
from jupyter_gpushare.view.metrics import (
    DAY_S,
    LABELS_MAX,
    NAMES,
    FleetCollector,
    ViewCounters,
    text_of,
)
from tests.view.figures.nodes import GIB, WALL_S, Reporting, device, place, tenant

Series = dict[str, dict[tuple[tuple[str, str], ...], float]]


def series_of(fleet: Fleet, now_s: float, counters: ViewCounters | None = None) -> Series:
    clocks = (now_s, WALL_S + now_s)
    collector = FleetCollector(fleet, counters or ViewCounters(), lambda: clocks, lambda: 2)
    found: Series = {}
    for family in text_string_to_metric_families(text_of([collector]).decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def only(series: Series, name: str) -> float:
    (value,) = series[name].values()
    return value


def busy_fleet() -> Fleet:
    fleet = Fleet()
    counts = (*range(len(WAIT_BOUNDS_S)), 5)
    node = Reporting(
        fleet,
        "a",
        now_s=0.0,
        waits=Waits(counts=counts, sum_s=99.5),
        problems=("The disk is full. Make room.",),
        platform="slurm",
        bytes_host_available=5 * GIB,
    )
    node.devices["0" * 32] = device(
        holders=(place("t1"),), queue=(place("t2", 30.0), place("t3", 4.0))
    )
    node.has(t1=tenant(bytes_parked=GIB), t2=tenant(bytes_parked=2 * GIB), t3=tenant("o" * 400))
    node.reports(0.0)
    node.reports(10.0)
    return fleet


@pytest.mark.promise(
    "view-17",
    "Prometheus reads of each node and device who holds, who waits and for how long, memory, and "
    "what is wrong; never a name of a user",
)
def test_the_figures_of_a_node() -> None:
    """Rows that are old say for how long they have been true."""
    fleet = busy_fleet()
    fleet.cannot_be_read("a", ReportError("It is no JSON."), now_s=10.0)
    found = series_of(fleet, 12.0, ViewCounters(refused_nodes=3))
    for name, value in {
        "gpushare_node_up": 1,
        "gpushare_node_last_report_timestamp_seconds": WALL_S + 10,
        "gpushare_node_conflict": 0,
        "gpushare_node_clock_skew_seconds": 0,
        "gpushare_node_reports_total": 2,
        "gpushare_node_reports_refused_total": 1,
        "gpushare_node_scheduler_restarts_total": 0,
        "gpushare_node_tenants": 3,
        "gpushare_node_memory_parked_bytes": 3 * GIB,
        "gpushare_node_problems": 1,
        "gpushare_node_host_memory_available_bytes": 5 * GIB,
        "gpushare_device_holders": 1,
        "gpushare_device_queue_length": 2,
        "gpushare_device_longest_wait_seconds": 42,
        "gpushare_device_memory_size_bytes": 8 * GIB,
        "gpushare_device_memory_used_bytes": 3 * GIB,
        "gpushare_device_memory_usable_bytes": 7 * GIB,
        "gpushare_device_memory_outside_bytes": GIB,
        "gpushare_device_lost": 0,
        "gpushare_wait_seconds_sum": 99.5,
        "gpushare_wait_seconds_count": 60,
        "gpushare_view_nodes_refused_total": 3,
        "gpushare_view_followers": 2,
    }.items():
        assert only(found, name) == value, name
    buckets = {dict(labels)["le"]: n for labels, n in found["gpushare_wait_seconds_bucket"].items()}
    assert buckets["0.1"] == 1 and buckets["1800.0"] == 55 and buckets["+Inf"] == 60
    ((labels, _),) = found["gpushare_node_info"].items()
    assert dict(labels) == {"node": "a", "version": "0.1.0", "platform": "slurm", "owners": "hub"}
    assert found.keys() == set(NAMES)


@pytest.mark.promise("view-17")
def test_users_make_no_series() -> None:
    """A thousand tenants of as many owners are no more series than one; nobody is named."""
    few, many = busy_fleet(), Fleet()
    node = Reporting(many, "a", now_s=0.0)
    node.devices["0" * 32] = device(queue=tuple(place(f"t{n}") for n in range(1000)))
    node.has(**{f"t{n}": tenant(f"owner{n}", groups=(f"group{n}",)) for n in range(1000)})
    node.reports(0.0)
    counted = [sum(map(len, series_of(fleet, 1.0).values())) for fleet in (few, many)]
    assert counted[0] == counted[1]
    text = text_of([FleetCollector(many, ViewCounters(), lambda: (1.0, WALL_S))]).decode()
    assert "owner5" not in text and "group5" not in text and "train" not in text


@pytest.mark.promise(
    "view-18", "A node that names other devices each time makes a bounded number of series in a day"
)
def test_a_node_whose_devices_are_new_each_time() -> None:
    """What it had before is shown on, and no other node has fewer. The next day it may have others.
    A node that is forgotten is forgotten here, too."""
    fleet = Fleet()
    liar, other = (Reporting(fleet, name, now_s=0.0, devices=8) for name in ("liar", "other"))
    collector = FleetCollector(fleet, ViewCounters(), lambda: (now_s, WALL_S))
    usual, seen = dict(liar.devices), set()
    for now_s in (*map(float, range(40)), 100.0, 2 * DAY_S):
        liar.devices = usual
        if 0 < now_s != 100.0:
            names = [f"{now_s}-{n}" for n in range(DEVICES_MAX)]
            liar.devices = {name: device(name=name) for name in (*names[1:], "x" * 400)}
        for node in (liar, other):
            node.breaks()
            node.reports(now_s)
        text = text_of([collector]).decode()
        series = {line.rpartition(" ")[0] for line in text.splitlines() if "device=" in line}
        shown = {line for line in series if line.startswith("gpushare_device_info")}
        if now_s < DAY_S:
            seen |= {line for line in shown if "liar" in line}
        assert sum("other" in line for line in shown) == 8
        if now_s == 100.0:
            assert sum("liar" in line for line in shown) == 8
    assert len(seen) == LABELS_MAX - 1  # and what is said of the node itself
    assert sum("liar" in line for line in shown) == DEVICES_MAX - 1
    del fleet.nodes["liar"]
    text_of([collector])
    assert collector._labels.keys() == {"other"}


def test_a_node_that_has_said_nothing_yet() -> None:
    """It is there, with what is known of it; so is one that went silent."""
    fleet = Fleet()
    Reporting(fleet, "new", now_s=0.0).connects(0.0)
    Reporting(fleet, "old", now_s=0.0).reports(0.0)
    found = series_of(fleet, 10.0)
    assert len(found["gpushare_node_up"]) == 2
    assert [*found["gpushare_node_tenants"]] == [(("node", "old"),)]
    found = series_of(fleet, SILENT_S + 1)
    assert set(found["gpushare_node_up"].values()) == {0.0}


def test_what_a_node_does_not_know() -> None:
    """Bytes below 0 are no figure; a clock that is behind is one."""
    fleet = Fleet()
    node = Reporting(fleet, "a", now_s=0.0)
    node.devices["0" * 32] = device(bytes_outside=-1, name="x" * 400)
    node.reports(0.0)
    fleet.nodes["a"].skew_s = -70.0
    found = series_of(fleet, 1.0)
    assert "gpushare_device_memory_outside_bytes" not in found
    assert only(found, "gpushare_node_clock_skew_seconds") == -70
    ((labels, _),) = found["gpushare_device_info"].items()
    assert len(dict(labels)["model"]) == 60


def test_a_scheduler_that_starts_anew() -> None:
    """Its waits begin again; the starts are counted."""
    fleet = busy_fleet()
    node = Reporting(fleet, "a", now_s=20.0)
    node.row = replace(node.row, waits=Waits())
    node.reports(20.0)
    found = series_of(fleet, 21.0)
    assert only(found, "gpushare_node_scheduler_restarts_total") == 1
    assert only(found, "gpushare_wait_seconds_count") == 0
    assert only(found, "gpushare_node_reports_total") == 3
