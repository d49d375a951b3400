"""The benchmark of notebooks that do not fit on the device measures, reports, and ends with a
status that says whether its bars are met; its figures are what they claim to be."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.bench import bench_notebooks, moves
from tests.bench.bars import exit_status
from tests.bench.beside import STAND_IN, Beside, measure_beside, slower_percent
from tests.bench.beside_ahead import measure_beside_ahead
from tests.bench.notebook_people import Ran, ideal_latencies_s
from tests.bench.notebook_plan import Plan, arguments, planned, settings_of
from tests.bench.notebook_report import (
    BESIDE_CELLS_MIN,
    RESTORE_AHEAD,
    Result,
    Samples,
    bars_of,
    interference_of_ahead,
    least_and_blind,
    result_of,
    tell,
)
from tests.bench.victims_model import RULES, Load, Run
from tests.support.machine import Machine
from tests.support.paths import ROOT
from tests.support.sim import GIB, MIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX, wait_until

BESIDE = ("interference_percent", "interference_copy_percent", "alloc_ms_p95_beside")
AHEAD = dict.fromkeys(BESIDE, RESTORE_AHEAD)
GOOD = Result(
    device="",
    tenants=8,
    device_bytes=140 * GIB,
    tenant_bytes=20 * GIB,
    cells=100,
    checksums_ok=True,
    work_s=0.28,
    latency_s_p50=0.5,
    latency_s_p95=1.4,
    ideal_s_p50=0.4,
    ideal_s_p95=1.0,
    ahead_share=0.5,
    hand_overs_parked=50,
    bytes_moved=12,
    bytes_least=10,
    bytes_blind=20,
    bytes_moved_ratio=1.2,
    bytes_moved_blind_ratio=0.6,
    work_slower_percent=0.0,
    interference_percent=0.1,
    interference_copy_percent=5.0,
    alloc_ms_p95_beside=0.1,
    beside=AHEAD,
)
SMALL = ("--tenants=4", "--device-gib=0.0625", "--thinking-s=0.2", "--work-s=0.02", "--seed=3")
# ---- the benchmark ------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.promise(
    "speed-2",
    "`make bench-notebooks` measures how long notebooks wait that do not fit on the device at "
    "once, beside the same arrivals with free transfers, with its bars",
)
def test_waits_of_notebooks_are_measured(tmp_path: Path) -> None:
    """A short run ends with one JSON object: memory moved, every byte was right, and what could not
    be measured is null with a reason. The raw samples lie beside it. Each notebook thinks 0.2 s and
    begins a cell: there are four of them, however slow the machine."""
    options = [*SMALL, "--seconds=16", "--warm-up-s=0.5", f"--output={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_notebooks", *options],
        cwd=ROOT,
        env={**os.environ, "GPUSHARE_DRIVER": "sim"},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["device"] == "simulated GPU" and report["checksums_ok"] is True
    assert report["cells"] >= 4 and report["work_s"] >= 0.02
    assert 0.02 <= report["latency_s_p50"] <= report["latency_s_p95"]
    assert report["work_s"] <= report["ideal_s_p50"] + 1e-3 <= report["ideal_s_p95"] + 2e-3
    assert report["bytes_moved"] > 0
    assert report["ahead_share"] is None or 0 <= report["ahead_share"] <= 1
    nulls = {name for name, value in report.items() if value is None}
    assert nulls == set(report["unmeasured"])
    assert all(f"{name} is null: " in done.stdout for name in nulls)
    samples = json.loads((tmp_path / "notebooks-samples.json").read_text())
    assert len(samples["ran"]) == report["cells"] and samples["turns"]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The path of a scheduler's socket below it is short enough, which it is not below `tmp_path`
    with its test's name."""
    with tempfile.TemporaryDirectory(prefix="nb-") as text:
        yield Path(text)


def test_a_benchmark_that_is_ended_leaves_no_process(short_folder: Path) -> None:
    """Its notebooks and its scheduler end with it, and its folder goes."""
    env = {**os.environ, "GPUSHARE_DRIVER": "sim", "TMPDIR": str(short_folder)}
    command = [sys.executable, "-m", "tests.bench.bench_notebooks", *SMALL, "--seconds=1000"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as bench:
        try:
            wait_until(
                lambda: (
                    bench.poll() is not None or len(processes_in(short_folder) - {bench.pid}) >= 5
                ),
                "the benchmark's scheduler and its four notebooks",
            )
            bench.send_signal(signal.SIGTERM)
            _, said = bench.communicate(timeout=WAIT_S_MAX)
        finally:
            bench.kill()
    assert bench.returncode == 1 and "ended by SIGTERM" in said, said
    wait_until(lambda: not processes_in(short_folder), "the end of its processes")
    assert not list(short_folder.iterdir())


def test_what_was_left_behind_is_ended_too() -> None:
    """A process that nobody else ends is ended where the benchmark fails."""
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(SystemExit, match="SIGALRM"), bench_notebooks.ended_in_order(600):
        started.append(subprocess.Popen(["sleep", "1000"]))
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # once it is there, on a busy machine too
        wait_until(lambda: False, "the alarm")
    assert started[0].wait(timeout=WAIT_S_MAX) == -signal.SIGKILL


def processes_in(folder: Path) -> set[int]:
    """Those whose environment names the folder."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.promise("speed-10")
@pytest.mark.parametrize(
    ("bad", "simulated_too"),
    [
        ({"checksums_ok": False}, True),
        ({"latency_s_p50": 0.53}, False),
        ({"latency_s_p95": 1.51}, False),
        ({"bytes_moved_ratio": 1.31}, False),
        ({"bytes_moved_ratio": None}, False),
        ({"interference_percent": 3.1}, False),
        ({"interference_copy_percent": 10.1}, False),
        ({"alloc_ms_p95_beside": 2.1}, False),
    ],
    ids=str,
)
def test_notebooks_that_wait_too_long_end_with_status_1(
    bad: dict[str, Any], simulated_too: bool
) -> None:
    """Each bar counts on a real device; simulated, the bytes do."""
    assert exit_status(bars_of(GOOD, simulated=False)) == 0
    found = dataclasses.replace(GOOD, **bad)
    assert exit_status(bars_of(found, simulated=False)) == 1
    assert exit_status(bars_of(found, simulated=True)) == simulated_too


def test_bars_that_do_not_count_are_shown_without_a_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The simulated GPU's waits, and what a stand-in does to a cell."""
    beside = {"interference_copy_percent": STAND_IN, "interference_percent": RESTORE_AHEAD}
    slow = dataclasses.replace(
        GOOD,
        latency_s_p50=9.0,
        interference_copy_percent=170.0,
        interference_percent=1.0,
        beside=beside,
    )
    assert tell(slow, simulated=True) == 0
    assert "do not count on the simulated GPU" in capsys.readouterr().out
    assert tell(slow, simulated=False) == 1
    said = capsys.readouterr().out
    assert "170.000" in said.partition("count beside a plain process")[2]
    verdicts = [line.split()[-1] for line in said.partition("bars count:")[2].splitlines()[1:]]
    assert verdicts == ["ok", "OVER", "ok", "ok", "ok"]


# ---- sizes --------------------------------------------------------------------------------------


def plan_for(*options: str, total: int, free: int) -> Plan:
    return planned(arguments().parse_args(options), total_bytes=total, free_bytes=free)


@pytest.mark.parametrize("gib", [16, 80, 140])
def test_sizes_follow_from_the_device(gib: int) -> None:
    """All notebooks have 1.14 of the device, and none has more than its part."""
    plan = plan_for(total=gib * GIB, free=gib * GIB - GIB // 2)
    assert 1.12 <= plan.tenants * plan.tenant_bytes / (gib * GIB) <= 1.14
    assert plan.limit_bytes == 0
    assert plan.host_bytes < 0.45 * gib * GIB


@pytest.mark.parametrize("asked", ["0", "20", "200"])
def test_no_more_than_is_free_is_asked_for(asked: str) -> None:
    """Where somebody else uses the device, the scheduler takes it for as large as what is free."""
    plan = plan_for(f"--device-gib={asked}", total=140 * GIB, free=60 * GIB)
    assert plan.limit_bytes == plan.device_bytes == (20 if asked == "20" else 60) * GIB
    (limit,) = settings_of(plan, simulated=False)
    assert limit.endswith(f"device_bytes_max={plan.device_bytes}")


def test_a_run_that_takes_too_long_counts_less() -> None:
    """What is left for the cells is what the start has left of the whole, and the end needs."""
    plan = plan_for("--seconds=50", "--within-s=95", total=140 * GIB, free=140 * GIB)
    assert plan.seconds_that_count(10.0) == 50
    assert plan.seconds_that_count(60.0) == 95 - 60 - 4 - 8
    assert plan.seconds_that_count(100.0) == 0
    assert plan_for(total=GIB, free=GIB).seconds_that_count(1000.0) == 50


# ---- figures ------------------------------------------------------------------------------------


def ran_at(*began_s: float) -> list[Ran]:
    """A cell of each notebook."""
    return [Ran(number, at_s, at_s, at_s, at_s) for number, at_s in enumerate(began_s)]


def test_the_ideal_waits_for_others_work_alone() -> None:
    """Cells that come together are served one after another, whatever their memory; one that comes
    alone takes its own work."""
    together = sorted(ideal_latencies_s(ran_at(100.0, 100.0, 100.0), 0.25))
    assert together == pytest.approx([0.25, 0.5, 0.75], abs=1e-6)
    assert ideal_latencies_s(ran_at(5.0, 6.0), 0.25) == pytest.approx([0.25, 0.25])
    assert ideal_latencies_s([], 0.25) == []


def entry(at_s: float, kind: str, client: int, *grants: int, **fields: int) -> dict[str, Any]:
    """A line of the journal."""
    event = {"type": kind, "client": client, **fields}
    commands = [{"type": "GrantTurn", "client": each} for each in grants]
    return {"at_s": at_s, "event": event, "commands": commands}


def report(at_s: float, client: int, parked: int, *grants: int) -> dict[str, Any]:
    memory = {"bytes_allocated": 100, "bytes_parked": parked}
    return entry(at_s, "MemoryReported", client, *grants, **memory)


BUDGET = {"type": "TellBudget", "client": 1, "usable_bytes": 150}
JOURNAL = [
    report(0.0, 1, 0),
    report(0.1, 2, 50),
    {**entry(0.5, "ClockTicked", 0), "commands": [BUDGET]},
    entry(1.0, "TurnRequested", 1, 1),
    entry(1.1, "TurnRequested", 2),
    report(1.2, 2, 30),
    entry(1.3, "TurnDropped", 1, 2),
    report(1.4, 1, 50),
    report(1.5, 2, 0),
    entry(1.6, "TurnRequested", 1),
    entry(1.7, "TurnDropped", 2, 1),
    report(1.8, 1, 20),
    entry(1.9, "TurnDropped", 1),
]
"""Client 1 is granted at once. Client 2 queues, and 20 of its 50 bytes come before its turn. Then
client 1 queues with 50 bytes parked, and its turn ends before they are all there."""


def test_turns_and_moves_are_read_from_the_journal() -> None:
    """Whose turns they were, who queued with parked memory, what came back, and when."""
    history = moves.history_of(JOURNAL)
    assert [(t.client, t.queued, t.complete) for t in history.turns] == [
        (1, False, True),
        (2, True, True),
        (1, True, False),
    ]
    waited = moves.waited_parked(history.turns, 0.0, 2.0)
    assert [(t.client, t.parked_bytes, t.came_ahead_bytes) for t in waited] == [
        (2, 50, 20),
        (1, 50, 0),
    ]
    assert moves.ahead_share(waited) == 0.5
    assert moves.waited_parked(history.turns, 1.5, 2.0) == waited[1:]
    assert moves.ahead_share([]) is None
    assert history.moved_bytes(0.0, 2.0) == 20 + 30 + 30
    assert history.moved_bytes(1.3, 1.8) == 30
    assert history.uses(0.0, 2.0) == [moves.Use(1), moves.Use(2)]
    assert history.waiting_at(1.1) == (2,) and history.waiting_at(1.65) == (1,)
    assert history.parked_at(1.0) == {1: 0, 2: 50}
    assert history.most_usable_bytes(1.4, 1.5) == 150
    assert history.most_usable_bytes(1.0, 2.0) == 180, "they had more than they were allowed"
    history.pids = {1: 100, 2: 200}
    assert history.was_paused(100, 1.0, 1.4) and not history.was_paused(100, 1.4, 1.9)
    assert not history.was_paused(200, 1.0, 1.4)
    assert least_and_blind(history, 1.0, 2.0) == (50, 50)


def test_a_withdrawn_request_is_no_hand_over() -> None:
    """An interrupted cell waits no more; nor does a process that has ended."""
    for kind in ("RequestWithdrawn", "ClientLost"):
        lines = [report(0.0, 1, 50), entry(1.0, "TurnRequested", 1), entry(2.0, kind, 1)]
        assert moves.history_of([*lines, entry(3.0, "ClockTicked", 0, 1)]).turns == []


def least_of_all(
    sizes: Mapping[int, int], resident: Mapping[int, int], room: int, uses: Sequence[int]
) -> int:
    """By trying everything that could be on the device after each turn, also what is brought back
    before its time."""
    names = sorted(sizes)
    states = [
        state
        for state in itertools.product(*(range(sizes[name] + 1) for name in names))
        if sum(state) <= room
    ]

    @cache
    def cost(place: int, there: tuple[int, ...]) -> int:
        if place == len(uses):
            return 0
        turn = names.index(uses[place])
        return min(
            sum(max(0, new - old) for new, old in zip(state, there, strict=True))
            + cost(place + 1, state)
            for state in states
            if state[turn] == sizes[uses[place]]
        )

    return cost(0, tuple(resident[name] for name in names))


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_of_victims_brings_back_less(seed: int) -> None:
    """Belady's rule, against every choice there is, for tenants of equal and of different sizes."""
    chance = random.Random(seed)
    names = range(chance.choice((2, 3, 4)))
    equal = chance.randint(1, 3)
    sizes = {name: equal if seed % 2 else chance.randint(1, 3) for name in names}
    room = chance.randint(max(sizes.values()), max(max(sizes.values()), sum(sizes.values()) - 1))
    resident = dict.fromkeys(names, 0)
    for name in names:
        resident[name] = chance.randint(0, min(sizes[name], room - sum(resident.values())))
    uses = [chance.choice(names) for _ in range(chance.randint(1, 6))]
    played = [moves.Use(who) for who in uses]
    least = moves.least_bytes(sizes, resident, room, played)
    assert least <= moves.blind_bytes(sizes, resident, room, played)
    assert least == least_of_all(sizes, resident, room, uses)


def test_the_least_of_a_known_case() -> None:
    """Three tenants of 10 bytes, room for 25: the victim is who comes last, and only in part."""
    sizes, resident = {1: 10, 2: 10, 3: 10}, {1: 10, 2: 10, 3: 5}

    def least(*uses: int, room: int = 25) -> int:
        return moves.least_bytes(sizes, resident, room, [moves.Use(who) for who in uses])

    assert least(1, 2, 1, 2) == 0
    assert least(3, 1, 2, 3) == 10
    with pytest.raises(ValueError, match="never"):
        least(1, room=9)


def test_without_the_future_those_who_wait_are_spared() -> None:
    """The victim is whose turn is longest ago, and of those who wait, the last in the queue."""
    sizes, resident = {1: 10, 2: 10, 3: 10}, {1: 10, 2: 10, 3: 0}

    def blind(*uses: moves.Use) -> int:
        return moves.blind_bytes(sizes, resident, 20, uses)

    assert blind(moves.Use(1), moves.Use(2), moves.Use(3), moves.Use(1)) == 20
    assert blind(moves.Use(1), moves.Use(2), moves.Use(3, (1,)), moves.Use(1)) == 10
    assert blind(moves.Use(3, (2, 1)), moves.Use(2), moves.Use(1)) == 20


def test_ratios_of_bytes() -> None:
    """Where nothing had to move, nothing is right, and something has no ratio."""
    assert moves.moved_ratio(13, 10) == 1.3
    assert moves.moved_ratio(0, 0) == 1.0
    assert moves.moved_ratio(5, 0) is None


def test_interference_is_that_of_the_mean(tmp_path: Path) -> None:
    """One launch of two that takes twice as long makes half as much more. The simulated device says
    why it has no figure."""
    assert slower_percent([10, 20], [10, 10]) == pytest.approx(50)
    machine = Machine(device="simulated GPU", env={}, sim=SimulatedMachine(tmp_path))
    found = measure_beside(machine, 1.0, 100 * GIB)
    assert found == Beside(why=found.why) and "no memory comes back" in found.why


def test_cells_beside_a_restore_ahead_are_found() -> None:
    """A cell counts that computed while another process's memory came back; its own does not. Of
    few such cells nothing is said."""
    history = moves.History(pids={7: 100, 8: 200})
    history.came_back = [moves.CameBack(1.5, 7, 10), moves.CameBack(3.5, 8, 10)]
    computed = Ran(0, 0.0, 0.0, 1.0, 2.2)
    cells = [computed] * BESIDE_CELLS_MIN + [Ran(1, 3.0, 3.0, 3.0, 9.0)]
    samples = Samples(pids=[200, 200], alone=[Ran(0, 0.0, 0.0, 0.0, 1.0)], ran=cells)
    assert interference_of_ahead(samples, history) == pytest.approx(20)
    samples.ran = cells[1:]
    assert interference_of_ahead(samples, history) is None


def test_the_report_says_beside_whose_restore_a_figure_is() -> None:
    """A restore ahead goes before a stand-in, on a real device; what nobody measured is null."""
    history = moves.history_of(JOURNAL)
    history.pids = {1: 100, 2: 200}
    history.came_back = [moves.CameBack(1.5, 2, 10)]
    for turn in history.turns:  # nobody was paused
        turn.ended_at_s = 2.0
    cells = [Ran(0, 1.0, 1.0, 1.0, 2.0)] * BESIDE_CELLS_MIN
    samples = Samples([100], alone=cells, ran=cells, intact=True, from_s=1.0, to_s=2.0)
    plan = plan_for(total=GIB, free=GIB)
    figures = dict.fromkeys(BESIDE[1:], 1.0)
    real = result_of(
        "",
        plan,
        samples,
        history,
        Beside(STAND_IN, "", {"interference_copy_on_device_percent": 4.0}),
        beside_ahead=figures,
        simulated=False,
    )
    assert [real.beside[name] for name in BESIDE] == [RESTORE_AHEAD] * 3
    assert real.beside["interference_copy_on_device_percent"] == STAND_IN
    assert (real.ahead_share, real.bytes_moved, real.bytes_least) == (0.5, 10, 50)
    assert not real.unmeasured
    why = Beside(why="why")
    nothing = result_of("", plan, samples, history, why, beside_ahead={}, simulated=True)
    assert set(BESIDE) < set(nothing.unmeasured) and nothing.beside == {}


@pytest.mark.full
def test_cells_beside_a_restore_ahead(tmp_path: Path) -> None:
    """They run, and their copies and allocations are timed. What the simulated device's figures are
    says nothing."""
    machine = Machine("simulated GPU", (sim := SimulatedMachine(tmp_path / "gpu")).env(), sim)
    figures = measure_beside_ahead(
        machine, tmp_path, tenant_bytes=192 * MIB, limit_bytes=512 * MIB, rounds=1
    )
    assert sorted(figures) == ["alloc_ms_p95_beside", "interference_copy_percent"]
    assert figures["alloc_ms_p95_beside"] > 0


def test_the_model_of_victims_is_the_ideal_where_all_memory_fits() -> None:
    """And beside it where not all does."""
    for parked, is_ideal in ((0.0, True), (1.5, False)):
        load = Load(
            notebooks=8, parked=parked, restore_s=0.3, work_s=0.26, thinking_s=3.0, seconds=80.0
        )
        run = Run(load, RULES["a third of each first"], random.Random(1))
        run.play()
        assert sum(run.parked) == pytest.approx(parked)
        p50, p95 = run.of_ideal()
        assert (p50 == pytest.approx(1) and p95 == pytest.approx(1)) is is_ideal
        assert p50 >= 0.99 and p95 >= 0.99
