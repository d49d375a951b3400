"""Random hand-overs among tenants that together hold more than the device, with faults, kills and
limits on host memory; every byte is verified after each.

`GPUSHARE_CHAOS_SEED` gives the seed of a run that is to be repeated, `GPUSHARE_CHAOS_STEPS` the
number of hand-overs."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Set
from pathlib import Path

import pytest

from tests.end_to_end.handovers import CONTEXT_BYTES, DECK, TENANTS, Director, machine_for
from tests.end_to_end.holdings import GRAPH_UNIT, KINDS
from tests.hook.runtime.test_sanitizers import (
    COMPILER_FLAGS,
    ENVIRONMENT,
    VARIANTS,
    build_hook,
    sanitized_driver,
)
from tests.support.memory_tenants import (
    MemoryTenants,
    built_tenant,
    faults,
    swapping_scheduler,
)
from tests.support.seeds import seed_or

RESERVE_BYTES = TENANTS * CONTEXT_BYTES + GRAPH_UNIT
"""For contexts; and what the driver takes for the first allocation of a graph is seen when it has
it."""
SETTINGS = (
    f"--GPUShareScheduler.device_reserve_bytes={RESERVE_BYTES}",
    "--GPUShareScheduler.probe_period_s=0.5",
    "--GPUShareScheduler.quantum_s=0.6",
    "--GPUShareScheduler.reclaim_s=1",
    "--GPUShareScheduler.park_timeout_s=5",
    "--GPUShareScheduler.memory_wait_s=10",
    "--GPUShareScheduler.restore_ahead=on",
)
SEEDS = (1, 45, 102)
"""Of the short runs; long ones take the first. One that fails with a new seed joins them."""
REFUSED_ONE_IN = 10
"""All that a tenant ever holds fits on the device: hardly an allocation has a reason to fail."""


def seed_of_this_run(usual: int) -> int:
    given = os.environ.get("GPUSHARE_CHAOS_SEED")
    return seed_or(usual) if given is None else int(given)


def steps_of_this_run(steps: int) -> int:
    return int(os.environ.get("GPUSHARE_CHAOS_STEPS", steps))


def hand_over_at_random(directory: Path, seed: int, steps: int, sanitizer: str = "") -> Director:
    """All that is promised of a run is asserted here."""
    print(f"seed {seed}: repeat with GPUSHARE_CHAOS_SEED={seed}")
    machine = machine_for(directory / "machine")
    env, options = {}, {}
    if sanitizer:
        env = ENVIRONMENT | sanitized_driver(sanitizer)
        program = built_tenant(COMPILER_FLAGS[sanitizer], suffix=f"-{VARIANTS[sanitizer]}")
        options = {"hook": build_hook(sanitizer), "program": program}
    with (
        swapping_scheduler(directory / "run", machine.env(), *SETTINGS, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), directory, **options) as tenants,
    ):
        director = Director(tenants, random.Random(seed), directory, env)
        director.begin()
        for _ in range(steps):
            director.step()
        assert director.end() == [], seed
    assert faults(machine) == [], seed
    assert machine.computing_overlaps() == [], seed
    moved = sum(r.amount for r in machine.journal() if r.kind.name == "UNMAP")
    assert moved > 0, "no memory ever left the device"
    assert director.counts.verified >= steps * TENANTS
    assert director.counts.refused <= director.counts.allocated // REFUSED_ONE_IN, seed
    director.counts.faults = len(machine.happened())
    print(director.counts, Counter(machine.happened()))
    return director


MUCH = {*KINDS, "shared", "given", "ahead", "killed", "limited"}
EVERYTHING = {*MUCH, "moved", "given whole", "replayed", "interrupted", "taken back"}
"""What has to meet somebody in the right moment happens in a long run for sure."""
SANITIZED_STEPS = {"address": 100, "thread": 60}
"""Less than two minutes on two slow cores."""


def assert_happened(director: Director, wanted: Set[str]) -> None:
    """Of runs that are long or whose seed is known; what somebody asks for may be a short one."""
    if os.environ.keys().isdisjoint({"GPUSHARE_CHAOS_SEED", "GPUSHARE_CHAOS_STEPS"}):
        counts = director.counts
        assert wanted - counts.did.keys() == set(), counts
        assert counts.faults > 0, counts


@pytest.mark.promise(
    "bad-memory-28",
    "1,000 random hand-overs among 6 tenants with memory of every kind (plain, rows, mapped, "
    "stream-ordered, of graphs, managed, arrays, shared and given to others), restore ahead, "
    "allocation failures, stalls, kills, interrupts and limits on host memory, each of which is "
    "seen to happen: every byte of every survivor is right after each; address and thread "
    "sanitizers are silent",
)
@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.full) for seed in SEEDS[1:])]
)
def test_random_hand_overs_lose_no_byte(tmp_path: Path, seed: int) -> None:
    """A short run, for which each card of the deck is dealt once at least."""
    director = hand_over_at_random(tmp_path, seed_of_this_run(seed), steps_of_this_run(DECK))
    assert_happened(director, MUCH)


@pytest.mark.promise("bad-memory-28")
@pytest.mark.full
@pytest.mark.long
@pytest.mark.seeded
@pytest.mark.timeout(1800)
def test_a_thousand_random_hand_overs_lose_no_byte(tmp_path: Path) -> None:
    """The whole run: 1,000 random hand-overs among 6 tenants, each of them followed by a look at
    every byte of every survivor."""
    director = hand_over_at_random(tmp_path, seed_of_this_run(SEEDS[0]), steps_of_this_run(1000))
    assert_happened(director, EVERYTHING)


@pytest.mark.promise("bad-memory-28")
@pytest.mark.full
@pytest.mark.seeded
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sanitizer", sorted(VARIANTS))
def test_random_hand_overs_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    """Address, undefined-behaviour and thread sanitizers have nothing to say of the hook, nor of
    the simulated driver. `make sanitize` makes more hand-overs."""
    steps = steps_of_this_run(SANITIZED_STEPS[sanitizer])
    hand_over_at_random(tmp_path, seed_of_this_run(SEEDS[0]), steps, sanitizer)
