"""What `jupyter gpushare simulate` does: a workload, its policies, a table."""

from __future__ import annotations

import argparse
import json
import sys

from jupyter_gpushare.core.configuration.values import changed_settings, find
from jupyter_gpushare.core.settings import SchedulerSettings, SettingsError
from jupyter_gpushare.simulator import load, picture
from jupyter_gpushare.simulator.base.errors import SimulationError
from jupyter_gpushare.simulator.base.record import Record
from jupyter_gpushare.simulator.base.workload import Workload, placed_anew
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.policies import POLICIES, named
from jupyter_gpushare.simulator.run import run
from jupyter_gpushare.simulator.summary import PolicyFigures, summarised
from jupyter_gpushare.simulator.trace import DEVICES_MAX

from .errors import UsageError
from .progress import ProgressBar
from .text import duration, size, table


def perform(arguments: argparse.Namespace) -> int:
    try:
        return _perform(arguments)
    except SimulationError as error:
        raise UsageError(str(error)) from error


def _perform(arguments: argparse.Namespace) -> int:
    policies = list(POLICIES) if arguments.policy == "all" else named(arguments.policy)
    given = _settings(arguments.settings)
    if arguments.picture:
        picture.check(arguments.picture)
    workload = _workload(arguments)
    settings = _changed({**workload.settings, **given})
    devices = _devices(arguments.devices, workload)
    if devices != workload.devices:
        workload = placed_anew(workload)
    world = World(settings=settings, device_bytes=workload.device_bytes)
    figures, drawn = [], []
    for policy in policies:
        record = _simulated(policy, workload, devices, world)
        figures.append(
            summarised(
                policy,
                workload,
                record,
                devices=devices,
                world=world,
            )
        )
        if arguments.picture:
            drawn.append(picture.Drawn(policy, record))
    if arguments.picture:
        picture.draw(arguments.picture, workload, drawn, devices=devices)
    if arguments.json:
        print(json.dumps({each.policy: each.as_json() for each in figures}, indent=2))
    else:
        print(rendered(workload, devices, figures))
    return 0


def _simulated(policy: str, workload: Workload, devices: int, world: World) -> Record:
    bar = ProgressBar(policy.ljust(12), len(workload.cells), stream=sys.stderr)
    try:
        return run(workload, POLICIES[policy], devices=devices, world=world, progress=bar.advance)
    finally:
        bar.end()


def _workload(arguments: argparse.Namespace) -> Workload:
    if bool(arguments.preset) == bool(arguments.files):
        raise UsageError("Name either files or a preset. See `simulate --help`.")
    if arguments.preset:
        return load.of_preset(arguments.preset, arguments.seed)
    total = sum(path.stat().st_size for path in arguments.files if path.is_file())
    bar = ProgressBar("reading", total, stream=sys.stderr, unit="bytes")
    try:
        return load.of_files(arguments.files, bar.advance)
    finally:
        bar.end()


def _devices(given: int | None, workload: Workload) -> int:
    devices = workload.devices if given is None else given
    if not 1 <= devices <= DEVICES_MAX:
        raise UsageError(f"--devices {devices} is not from 1 to {DEVICES_MAX}. Correct it.")
    return devices


def _settings(pairs: list[str]) -> dict[str, object]:
    """What is to be changed, by name."""
    changes: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair} has no value. Write --set NAME=VALUE.")
        try:
            changes[find(name).name] = text
        except SettingsError as error:
            raise UsageError(str(error)) from error
    _changed(changes)
    return changes


def _changed(changes: dict[str, object]) -> SchedulerSettings:
    """The defaults with these changes."""
    try:
        return changed_settings(SchedulerSettings(), changes)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def rendered(workload: Workload, devices: int, figures: list[PolicyFigures]) -> str:
    """The figures as a person reads them. Pure."""
    owners = len({notebook.owner for notebook in workload.notebooks})
    head = (
        f"{workload.title}: {len(workload.cells):,} cells in {len(workload.notebooks):,} notebooks "
        f"of {owners:,} owners, on {devices:,} device{'s' * (devices > 1)} of "
        f"{size(workload.device_bytes)}"
    )
    columns = [
        "POLICY",
        "WAIT P50",
        "WAIT P95",
        "MAKESPAN",
        "WORK",
        "SWAP",
        "IDLE",
        "JAIN",
        "LAG",
    ]
    rows = [_row(each) for each in figures]
    notes = [
        f"{each.policy}: {each.cells_failed:,} cells were refused their memory."
        for each in figures
        if each.cells_failed
    ]
    return "\n\n".join([head, table(columns, rows), *notes])


def _row(figures: PolicyFigures) -> list[str]:
    return [
        figures.policy,
        duration(figures.short_wait_s_p50),
        duration(figures.short_wait_s_p95),
        duration(figures.makespan_s),
        _part(figures.work_share),
        _part(figures.swap_share),
        _part(figures.idle_while_eligible),
        f"{figures.jain:.2f}",
        duration(figures.lag_s_max),
    ]


def _part(share: float) -> str:
    return "0 %" if not share else f"{max(share, 0.001):.1%}".replace("%", " %")
