"""The models of other ways to share a device, rule by rule. tests/simulator/test_measured.py
compares them with the real things."""

from __future__ import annotations

import pytest

from jupyter_gpushare.simulator.base.hardware import GB, Hardware
from jupyter_gpushare.simulator.base.record import Kind
from jupyter_gpushare.simulator.base.workload import GIB
from jupyter_gpushare.simulator.baselines.pager import Pager
from jupyter_gpushare.simulator.baselines.reserved import CULL_S
from jupyter_gpushare.simulator.baselines.timeslicing import speeds_of

from .scenes import notebook, responses, simulated, workload


def test_nvshare_serves_in_the_order_of_asking() -> None:
    """Three notebooks with 50 s of work each have 30 s in turn, and then the rest, with 5 s after
    each end until it counts as idle."""
    scene = workload([notebook(n) for n in "abc"], [(i, float(i), 50.0) for i in range(3)])
    record = simulated("nvshare", scene)
    work = [span for span in record.spans() if span.kind is Kind.WORK]
    assert [(span.notebook, span.start_s) for span in work] == [
        (0, 0.0),
        (1, 30.0),
        (2, 60.0),
        (0, 90.0),
        (1, 115.0),
        (2, 140.0),
    ]


def test_nvshare_frees_the_device_of_a_closed_notebook_at_once() -> None:
    """The lock of a process that has ended is free; nobody waits 5 s for it."""
    pair = [notebook("a", closes_s=0.0), notebook("b")]
    scene = workload(pair, [(0, 0.0, 1.0), (1, 0.5, 1.0)])
    assert max(simulated("nvshare", scene).ends_s) == pytest.approx(2.0)


def test_gemini_keeps_its_token_and_passes_it_to_who_used_least() -> None:
    """Of a cell of 0.1 s the token lasts 0.25 s; then whoever waited has it, and then the one that
    used the device least."""
    scene = workload([notebook(n) for n in "abc"], [(0, 0.0, 0.1), (1, 0.05, 0.6), (2, 0.3, 0.2)])
    record = simulated("gemini", scene)
    work = [(s.notebook, s.start_s) for s in record.spans() if s.kind is Kind.WORK]
    assert work == [(0, 0.0), (1, 0.25), (2, 0.5), (1, pytest.approx(0.75))]


def test_gemini_reserves_memory() -> None:
    """A notebook that does not fit beside the other waits until that one is culled."""
    pair = [notebook("a", gib=100), notebook("b", gib=100)]
    scene = workload(pair, [(0, 0.0, 1.0), (1, 10.0, 1.0)])
    record = simulated("gemini", scene)
    assert responses(scene, record, 1) == [pytest.approx(1.0 + CULL_S - 10.0 + 1.0, abs=0.3)]


def test_a_reserved_device_is_culled_after_an_hour() -> None:
    """Not while its notebook runs cells."""
    pair = [notebook("a"), notebook("b")]
    scene = workload(pair, [(0, 0.0, 1.0), (1, 1.0, 1.0), (0, CULL_S - 60, 1.0)])
    record = simulated("reservation", scene)
    assert responses(scene, record, 1) == [pytest.approx(2 * CULL_S - 60 + 1.0 - 1.0 + 1.0)]
    held = sum(s.end_s - s.start_s for s in record.spans() if s.kind is Kind.HELD)
    assert held == pytest.approx(2 * CULL_S - 60 - 1.0)


def test_reservations_use_all_devices_of_the_node() -> None:
    """The third notebook waits, the second does not, wherever they were to run."""
    notebooks = [notebook(n, device=0, closes_s=0.0) for n in "abc"]
    scene = workload(notebooks, [(i, 0.0, 10.0) for i in range(3)], devices=2)
    assert sorted(simulated("reservation", scene).ends_s) == [10.0, 10.0, 20.0]


def test_pages_leave_by_last_use() -> None:
    """The least recently used memory leaves; new memory need not come."""
    pager = Pager(Hardware(page_bytes_per_s=GB), 10 * GB)
    assert pager.touch(1, 6 * GB) == 0.0
    assert pager.touch(2, 4 * GB) == 0.0
    assert pager.touch(1, 6 * GB) == 0.0
    assert pager.touch(3, 3 * GB) == pytest.approx(3.0), "3 GB of the second leave"
    assert pager.touch(2, 4 * GB) == pytest.approx(3.0), "they come, while as much of 1 leaves"
    pager.forget(1)
    assert pager.touch(3, 3 * GB) == 0.0


def test_time_slices_are_shared_by_whoever_is_ready() -> None:
    """Alone nothing is lost. Equal ones have equal parts, and together less than the device. A
    process with long gaps takes little from one that is always busy."""
    hardware = Hardware()
    busy, seldom = notebook("a"), notebook("b", burst_s=0.001, gap_s=0.099)
    assert speeds_of([busy], hardware, GIB) == [(1.0, 1.0)]
    two = speeds_of([busy, notebook("c")], hardware, 80 * GIB)
    assert two[0] == two[1] and 0.8 < two[0][1] + two[1][1] < 1.0
    (speed, _), (speed_of_seldom, share) = speeds_of([busy, seldom], hardware, 80 * GIB)
    assert 0.97 < speed < 0.99 and speed_of_seldom == 1.0 and share == pytest.approx(0.01)


def test_memory_that_does_not_fit_thrashes() -> None:
    """Two notebooks of 60 GiB on a device of 80 are slower than two that fit."""
    hardware = Hardware()
    fitting = speeds_of([notebook(n, gib=40) for n in "ab"], hardware, 80 * GIB)
    thrashing = speeds_of([notebook(n, gib=60) for n in "ab"], hardware, 80 * GIB)
    assert thrashing[0][0] < fitting[0][0] / 2
