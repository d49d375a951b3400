"""The demo from curtain to curtain, for both of its forms: play, judge, draw, tell."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

import requests

from jupyter_gpushare.client import ClientError
from tests.demo.memory import make_memory_report, more_than_the_device, without_swap
from tests.demo.options import Options
from tests.demo.own import make_own_report, own_cells_alone, own_cells_beside_training
from tests.demo.picture import draw
from tests.demo.report import Report, make_report
from tests.demo.scenes import NAMES, NOTEBOOKS, TRAINING_NUMBER, Act, with_turns, without_turns
from tests.demo.stage import Stage
from tests.demo.training import (
    make_training_report,
    short_cells_alone,
    short_cells_beside_training,
)
from tests.support import gpu_cells
from tests.support.sim import MIB

REPORT, PICTURE = "demo-report.json", "demo-timeline.png"


class Verdict(Protocol):
    """A report of either form."""

    def as_json(self) -> dict[str, object]: ...

    def complaints(self) -> list[str]: ...


def play_with_memory(stage: Stage, device_bytes: int) -> tuple[Act, Act]:
    """Memory that stays, and memory that follows the turn; settings are as before afterwards."""
    before = stage.scheduler.status()["settings"]
    stayed = stage.play(without_swap(device_bytes))
    stage.run_everywhere(gpu_cells.let_go())
    swapped = stage.play(more_than_the_device(device_bytes))
    stage.run_everywhere(gpu_cells.let_go())
    names = ("memory_mode", "device_reserve_bytes")
    stage.scheduler.change_settings({name: before[name] for name in names} | {"turns": "on"})
    return stayed, swapped


def perform(
    stage: Stage, options: Options, *, device_bytes: int, began_s: float
) -> tuple[Report, list[Act]]:
    """Play all scenes, and judge them; turns are on again afterwards."""
    own_alone = stage.play(own_cells_alone())
    alone = stage.play(short_cells_alone(options))
    beside = stage.play(short_cells_beside_training(options))
    shared = stage.play(with_turns(options))
    control = stage.play(without_turns(options))
    stayed, swapped = play_with_memory(stage, device_bytes)
    own_beside = stage.play(own_cells_beside_training())
    for act in (own_alone, alone, beside, shared, control, swapped, own_beside):
        for failure in act.failures:
            print(f"A cell failed: {failure}", file=sys.stderr)
    report = make_report(
        device=stage.machine.device,
        simulated=stage.machine.simulated,
        judged_by=stage.observed.judged_by,
        names=NOTEBOOKS,
        shared=shared,
        control=control,
        memory=make_memory_report(device_bytes, swapped, stayed),
        training=make_training_report(alone, beside, training=TRAINING_NUMBER),
        own=make_own_report(own_alone, own_beside),
        others=[own_alone, alone, beside, swapped, own_beside],
        seconds=time.monotonic() - began_s,
    )
    return report, [beside, shared, control, swapped, own_beside]


def write_down(verdict: Verdict, acts: Sequence[Act], device: str, options: Options) -> None:
    """demo-report.json and demo-timeline.png."""
    draw(acts, NAMES, options.folder / PICTURE, device)
    write_report(verdict, options.folder / REPORT)


def write_report(verdict: Verdict, path: Path) -> None:
    path.write_text(f"{json.dumps(verdict.as_json(), indent=2)}\n")


def summary(report: Report) -> dict[str, str]:
    """What is told at the end, by name."""
    memory, training = report.memory, report.training
    waits = ", ".join(f"{name} {count}" for name, count in report.waits.items())
    return {
        "device": report.device,
        "judged by": report.judged_by,
        "cells": f"{report.cells}, of which {report.cells_failed} failed",
        "overlaps with turns": str(report.overlaps),
        "overlaps without turns": str(report.overlaps_without_turns),
        "waits served": waits,
        "hand-overs": f"{report.hand_overs}, {report.handoff_ms_p50} ms in the median",
        "short cell alone": f"{training.short_alone_s} s",
        "beside a training": f"{training.short_beside_training_s_p95} s at p95",
        "the training has": f"{training.training_share} of what the short cells leave",
        "own cells of": ", ".join(f"{work_s:g} s" for work_s in report.own.own_work_s),
        "  alone": ", ".join(f"{took_s} s" for took_s in report.own.own_alone_s),
        "  beside own training": ", ".join(
            f"{took_s} s" for took_s in report.own.own_beside_training_s_p95
        )
        + " at p95",
        "memory in all": "more than the device has" if memory.oversubscribed else "fits",
        "checksums": "right" if memory.checksums_ok else "WRONG",
        "parked per hand-over": f"{memory.bytes_parked_per_handover / MIB:.0f} MiB",
        "out of memory": f"{memory.oom}, with memory that stays {memory.oom_without_swap}",
        "in all": f"{report.seconds} s",
    }


def tell(
    rows: Mapping[str, str],
    verdict: Verdict,
    folder: Path,
    *,
    report: str = REPORT,
    picture: str = PICTURE,
) -> int:
    """Print the summary and what does not hold; the exit status."""
    print()
    for name, value in rows.items():
        print(f"  {name:<24}{value}")
    complaints = verdict.complaints()
    for complaint in complaints:
        print(f"\nThis does not hold: {complaint}", file=sys.stderr)
    print(f"\nWritten: {folder / report}, {picture}")
    return 1 if complaints else 0


def end_politely(number: int, frame: FrameType | None) -> None:
    """SIGTERM and a closed terminal stop everything as Ctrl-C does."""
    raise KeyboardInterrupt


def run_to_the_end(demo: Callable[[], int]) -> int:
    """The exit status of a demo; what keeps it from its end is one sentence."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_politely)
    try:
        return demo()
    except KeyboardInterrupt:
        print("\nStopped; everything that the demo started has ended.", file=sys.stderr)
        return 130
    except (AssertionError, ClientError, OSError, RuntimeError, requests.HTTPError) as error:
        print(f"\nThe demo could not run to its end: {error}", file=sys.stderr)
        return 1
