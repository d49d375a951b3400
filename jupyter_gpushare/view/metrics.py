"""What Prometheus reads of the view. Pure: a collector is given the time when it is asked.

Labels are nodes and devices alone. How many series there are follows from the machines that an
administrator has, and never from what users do: owners, tenants and texts of nodes are in none,
but for the names of models, modes, platforms and versions, which are cut to a few characters. Of
these, and of devices, a node may have a bounded number in a day: one that lies makes no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from jupyter_gpushare.reports.format import DEVICES_MAX, WAIT_BOUNDS_S, DeviceRow, NodeRow
from jupyter_gpushare.version import __version__

from .fleet import Fleet, Node

LABEL_CHARACTERS_MAX = 60
LABELS_MAX = 4 * DEVICES_MAX
"""Of a node, in a day: each device in each mode, and whose instances are divided anew."""
DAY_S = 86_400.0
_BOUNDS = [*map(floatToGoString, WAIT_BOUNDS_S), "+Inf"]


@dataclass(slots=True)
class ViewCounters:
    """Of the view itself. The service counts; nodes are in the Fleet."""

    refused_nodes: int = 0
    """Connections of nodes whose credential is unknown, or that may not report."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A gauge, or a counter, with a value of each thing (None: it has none)."""

    name: str
    meaning: str
    value: Callable[..., float | None]
    counts: bool = False
    signed: bool = False
    """Else a number below 0 is of a node that does not know it."""


_OF_NODES = (
    _Figure(
        "gpushare_node_up",
        "1 while the node reports; 0 once it has been silent for 45 seconds.",
        lambda node, now_s, wall_s: int(not node.is_silent(now_s)),
    ),
    _Figure(
        "gpushare_node_last_report_timestamp_seconds",
        "When the view has last heard of the node.",
        lambda node, now_s, wall_s: wall_s - (now_s - node.heard_s),
    ),
    _Figure(
        "gpushare_node_conflict",
        "1 for a minute after two schedulers have come under the name of the node.",
        lambda node, now_s, wall_s: int(node.is_in_conflict(now_s)),
    ),
    _Figure(
        "gpushare_node_clock_skew_seconds",
        "Clock of the node less that of the view.",
        lambda node, now_s, wall_s: node.skew_s if node.row is not None else None,
        signed=True,
    ),
    _Figure(
        "gpushare_node_reports",
        "Reports of the node that were taken.",
        lambda node, now_s, wall_s: node.reports,
        counts=True,
    ),
    _Figure(
        "gpushare_node_reports_refused",
        "Messages of the node that could not be believed.",
        lambda node, now_s, wall_s: node.refused,
        counts=True,
    ),
    _Figure(
        "gpushare_node_scheduler_restarts",
        "Starts of the scheduler of the node after the first one that the view has seen.",
        lambda node, now_s, wall_s: node.restarts,
        counts=True,
    ),
    _Figure(
        "gpushare_node_tenants",
        "Kernels and commands that share the devices of the node.",
        lambda node, now_s, wall_s: len(node.tenants) if node.row is not None else None,
    ),
    _Figure(
        "gpushare_node_memory_parked_bytes",
        "Memory of devices that lies in the memory of the host.",
        lambda node, now_s, wall_s: (
            sum(tenant.bytes_parked for tenant in node.tenants.values())
            if node.row is not None
            else None
        ),
    ),
)
_OF_ROWS: tuple[_Figure, ...] = (
    _Figure(
        "gpushare_node_problems",
        "What the checks of the node itself have found.",
        lambda row: len(row.problems),
    ),
    _Figure(
        "gpushare_node_recovering",
        "1 while the scheduler waits after its start for kernels to come back.",
        lambda row: int(row.recovering),
    ),
    _Figure(
        "gpushare_node_turns_on",
        "1 while tenants take turns; 0 while an administrator has switched turns off.",
        lambda row: int(row.turns_on),
    ),
    _Figure(
        "gpushare_node_host_memory_available_bytes",
        "Memory of the host into which more can be parked.",
        lambda row: row.bytes_host_available,
    ),
    _Figure(
        "gpushare_node_scheduler_start_timestamp_seconds",
        "When the scheduler of the node began.",
        lambda row: row.started_at,
    ),
)
_OF_DEVICES = (
    _Figure(
        "gpushare_device_holders",
        "Tenants that have the turn.",
        lambda row, for_s: len(row.holders),
    ),
    _Figure(
        "gpushare_device_queue_length",
        "Tenants that wait for the turn.",
        lambda row, for_s: len(row.queue),
    ),
    _Figure(
        "gpushare_device_longest_wait_seconds",
        "For how long the tenant has waited that has waited longest; 0 where none waits.",
        lambda row, for_s: max((each.for_s + for_s for each in row.queue), default=0.0),
    ),
    _Figure(
        "gpushare_device_memory_size_bytes",
        "Memory of the device.",
        lambda row, for_s: row.bytes_total,
    ),
    _Figure(
        "gpushare_device_memory_used_bytes",
        "Of it, what is taken.",
        lambda row, for_s: row.bytes_used,
    ),
    _Figure(
        "gpushare_device_memory_usable_bytes",
        "Of it, what tenants may have together.",
        lambda row, for_s: row.bytes_usable,
    ),
    _Figure(
        "gpushare_device_memory_outside_bytes",
        "Of it, what programs outside the sharing have.",
        lambda row, for_s: row.bytes_outside,
    ),
    _Figure(
        "gpushare_device_lost",
        "1 once the device has fallen off, or answers no more.",
        lambda row, for_s: int(row.lost),
    ),
)
NAMES = (
    *(
        each.name + ("_total" if each.counts else "")
        for each in (*_OF_NODES, *_OF_ROWS, *_OF_DEVICES)
    ),
    *("gpushare_node_info", "gpushare_device_info"),
    *(f"gpushare_wait_seconds_{part}" for part in ("bucket", "sum", "count")),
    *("gpushare_view_info", "gpushare_view_nodes_refused_total", "gpushare_view_followers"),
)
"""Of all series that there are."""


class Labels:
    """That a node has had in the last day. Once they are many, no new ones are shown."""

    def __init__(self) -> None:
        self._shown_s: dict[tuple[str, ...], float] = {}
        """When each was last shown, in this order."""

    def may_show(self, labels: tuple[str, ...], now_s: float) -> bool:
        shown = self._shown_s
        while shown and now_s - shown[oldest := next(iter(shown))] > DAY_S:
            del shown[oldest]
        if labels not in shown and len(shown) >= LABELS_MAX:
            return False
        shown.pop(labels, None)
        shown[labels] = now_s
        return True


class FleetCollector:
    """`clocks` gives the monotonic time of the view and the seconds since 1970; `followers` counts
    the pages that are told of changes now."""

    def __init__(
        self,
        fleet: Fleet,
        counters: ViewCounters,
        clocks: Callable[[], tuple[float, float]],
        followers: Callable[[], int] = lambda: 0,
    ) -> None:
        self._followers = followers
        self._fleet = fleet
        self._counters = counters
        self._clocks = clocks
        self._labels: dict[str, Labels] = {}

    def describe(self) -> Iterable[Metric]:
        return ()  # so that nobody collects only to learn the names

    def collect(self) -> Iterator[Metric]:
        now_s, wall_s = self._clocks()
        nodes = sorted(self._fleet.nodes.copy().values(), key=lambda node: node.name)
        rows = [(node.name, node.row) for node in nodes if node.row is not None]
        self._labels = {node.name: self._labels.get(node.name) or Labels() for node in nodes}
        yield from _families(
            _OF_NODES, ["node"], [((node.name,), (node, now_s, wall_s)) for node in nodes]
        )
        yield from _families(_OF_ROWS, ["node"], [((name,), (row,)) for name, row in rows])
        yield _node_info(
            each for each in rows if self._may_show(each[0], _labels_of_node(each[1]), now_s)
        )
        yield _waits(rows)
        devices = [
            each
            for each in _devices(nodes, now_s)
            if self._may_show(each[0], _labels_of_device(each[1], each[2]), now_s)
        ]
        yield from _families(
            _OF_DEVICES,
            ["node", "device"],
            [((name, device), (row, for_s)) for name, device, row, for_s in devices],
        )
        yield _device_info(devices)
        yield from self._of_the_view()

    def _may_show(self, node: str, labels: tuple[str, ...], now_s: float) -> bool:
        return self._labels[node].may_show(labels, now_s)

    def _of_the_view(self) -> Iterator[Metric]:
        yield InfoMetricFamily("gpushare_view", "The view itself.", value={"version": __version__})
        yield CounterMetricFamily(
            "gpushare_view_nodes_refused",
            "Connections of nodes that were refused for their credential.",
            value=self._counters.refused_nodes,
        )
        yield GaugeMetricFamily(
            "gpushare_view_followers",
            "Pages that are told of changes.",
            value=self._followers(),
        )


def text_of(collectors: Sequence[FleetCollector]) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


Devices = Sequence[tuple[str, str, DeviceRow, float]]
"""Node, device, row, and the age of the row."""


def _devices(nodes: Iterable[Node], now_s: float) -> Iterator[tuple[str, str, DeviceRow, float]]:
    for node in nodes:
        at_s = node.devices_at_s
        for device, row in sorted(node.devices.items()):
            if len(device) <= LABEL_CHARACTERS_MAX:  # those of drivers are, and two cut ones clash
                yield node.name, device, row, max(0.0, now_s - at_s.get(device, now_s))


def _families(
    figures: Iterable[_Figure],
    labels: Sequence[str],
    things: Sequence[tuple[tuple[str, ...], tuple[object, ...]]],
) -> Iterator[Metric]:
    for figure in figures:
        kind = CounterMetricFamily if figure.counts else GaugeMetricFamily
        family = kind(figure.name, figure.meaning, labels=labels)
        for values, of in things:
            value = figure.value(*of)
            if value is not None and (value >= 0 or figure.signed):
                family.add_metric(values, value)
        yield family


def _node_info(rows: Iterable[tuple[str, NodeRow]]) -> Metric:
    info = InfoMetricFamily("gpushare_node", "Version and place of the node.", labels=["node"])
    for name, row in rows:
        info.add_metric(
            [name], dict(zip(("version", "platform", "owners"), _labels_of_node(row), strict=True))
        )
    return info


def _device_info(devices: Devices) -> Metric:
    info = InfoMetricFamily(
        "gpushare_device", "Model and mode of the device.", labels=["node", "device"]
    )
    for name, device, row, _ in devices:
        _, model, mode = _labels_of_device(device, row)
        info.add_metric([name, device], {"model": model, "mode": mode})
    return info


def _waits(rows: Iterable[tuple[str, NodeRow]]) -> Metric:
    family = HistogramMetricFamily(
        "gpushare_wait_seconds",
        "Waits for turns that ended with a turn, since the scheduler of the node began.",
        labels=["node"],
    )
    for name, row in rows:
        counts = list(accumulate(row.waits.counts))
        family.add_metric([name], list(zip(_BOUNDS, counts, strict=True)), row.waits.sum_s)
    return family


def _labels_of_node(row: NodeRow) -> tuple[str, str, str]:
    return _cut(row.version), _cut(row.platform), _cut(row.owners)


def _labels_of_device(device: str, row: DeviceRow) -> tuple[str, str, str]:
    return device, _cut(row.name), _cut(row.mode)


def _cut(text: str) -> str:
    return text[:LABEL_CHARACTERS_MAX]
