"""Who holds the device and who waits, while it happens: strips on a terminal, else plain lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TextIO

HOLDS, WAITS, IDLE = "█", "░", "·"  # also told apart where there is no colour
COLOURS = ("\x1b[36m", "\x1b[33m", "\x1b[35m")
PLAIN = "\x1b[0m"
WORDS = {HOLDS: "holds", WAITS: "waits", IDLE: "idle"}
STRIP = 60


class LiveView:
    """Feed it the scheduler's status as often as you like."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self._names = names
        self._out = out
        self._strips = ["" for _ in names]
        self._shown: list[str] | None = None
        self._began_s = time.monotonic()
        self._on_terminal = out.isatty()
        self._drawn = False

    def headline(self, text: str) -> None:
        self._leave_strips()
        print(f"\n{text}", file=self._out, flush=True)

    def show(self, status: dict[str, Any]) -> None:
        states = [self._state(status, name) for name in self._names]
        if self._on_terminal:
            self._draw(states)
        elif states != self._shown:
            told = ", ".join(f"{n} {WORDS[s]}" for n, s in zip(self._names, states, strict=True))
            print(f"{time.monotonic() - self._began_s:6.2f} s  {told}", file=self._out, flush=True)
        self._shown = states

    def _state(self, status: dict[str, Any], name: str) -> str:
        for device in status["devices"]:
            if any(holder["name"] == name for holder in device["holders"]):
                return HOLDS
            if any(waiter["name"] == name for waiter in device["queue"]):
                return WAITS
        return IDLE

    def _draw(self, states: Sequence[str]) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{len(states)}A")
        for number, state in enumerate(states):
            self._strips[number] = (self._strips[number] + state)[-STRIP:]
            colour = COLOURS[number % len(COLOURS)]
            strip = f"{colour}{self._strips[number]:<{STRIP}}{PLAIN}"
            self._out.write(f"\r\x1b[2K  {self._names[number]:<14} {strip} {WORDS[state]}\n")
        self._out.flush()
        self._drawn = True

    def _leave_strips(self) -> None:
        self._drawn = False
        self._strips = ["" for _ in self._names]
