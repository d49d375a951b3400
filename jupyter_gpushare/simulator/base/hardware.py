"""The figures of the simulated devices and hooks. The defaults are measured on one H200."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpushare.core.ids import Seconds

GB = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What moving memory and changing hands costs."""

    park_bytes_per_s: float = 44 * GB
    restore_bytes_per_s: float = 44 * GB
    """With the other direction busy too, as it is where one notebook makes room for another."""
    move_step_bytes: int = 1 << 30
    """A hook tells the scheduler of so much at a time."""
    drain_s: Seconds = 0.02
    """From a recall to the end of the work in flight, which goes on meanwhile (`window_ms`)."""
    hand_over_s: Seconds = 0.0019
    """From a grant to the first launch."""
    look_s: Seconds = 0.01
    """How long the driver takes to say what is in use on a device."""
    page_bytes_per_s: float = 15.4 * GB
    """Unified memory, moved by page faults, while as much leaves: how baselines exceed a device's
    memory."""
    touch_s: Seconds = 1.0
    """In this time of work a cell touches all its memory once. Only time-slicing depends on it."""
    slice_s: Seconds = 0.002
    switch_s: Seconds = 0.00028
    """The driver's time slice, and what it loses from one slice to the next. `switch_s` is chosen
    so that the simulation agrees with what was measured of two processes on one device."""
