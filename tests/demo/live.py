"""Who holds the device and who waits, while it happens: strips on a terminal, else plain lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TextIO

HOLDS, WAITS, IDLE = "█", "░", "·"  # also told apart where there is no colour
COLOURS = ("\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m")
PLAIN = "\x1b[0m"
WORDS = {HOLDS: "holds", WAITS: "waits", IDLE: "idle"}
STRIP = 60


class Screen:
    """Lines that are redrawn in place on a terminal; elsewhere each piece of news is a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began_s = time.monotonic()
        self._drawn = 0
        self.is_terminal = out.isatty()

    def headline(self, text: str) -> None:
        """What was drawn before it is left standing."""
        self._drawn = 0
        print(f"\n{text}", file=self._out, flush=True)

    def tell(self, news: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.2f} s  {news}", file=self._out, flush=True)

    def draw(self, lines: Sequence[str]) -> None:
        """In the place of what was drawn last."""
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
        self._out.write("".join(f"\r\x1b[2K{line}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)


class LiveView:
    """Feed it the scheduler's status as often as you like."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self._names = names
        self._screen = Screen(out)
        self._strips = ["" for _ in names]
        self._shown: list[str] | None = None

    def headline(self, text: str) -> None:
        self._strips = ["" for _ in self._names]
        self._screen.headline(text)

    def show(self, status: dict[str, Any]) -> None:
        states = [self._state(status, name) for name in self._names]
        if self._screen.is_terminal:
            self._draw(states)
        elif states != self._shown:
            told = (f"{n} {WORDS[s]}" for n, s in zip(self._names, states, strict=True))
            self._screen.tell(", ".join(told))
        self._shown = states

    def _state(self, status: dict[str, Any], name: str) -> str:
        for device in status["devices"]:
            if any(holder["name"] == name for holder in device["holders"]):
                return HOLDS
            if any(waiter["name"] == name for waiter in device["queue"]):
                return WAITS
        return IDLE

    def _draw(self, states: Sequence[str]) -> None:
        lines = []
        for number, state in enumerate(states):
            self._strips[number] = (self._strips[number] + state)[-STRIP:]
            colour = COLOURS[number % len(COLOURS)]
            strip = f"{colour}{self._strips[number]:<{STRIP}}{PLAIN}"
            lines.append(f"  {self._names[number]:<14} {strip} {WORDS[state]}")
        self._screen.draw(lines)
