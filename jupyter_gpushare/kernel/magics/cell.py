"""`%%gpushare --class batch --need 40GiB --hold`: what holds for one cell alone.

The bootstrap makes a line of it that the cell begins with, and leaves the rest of the cell as it
is: so `await`, results, history and tracebacks are those of a plain cell.
"""

import time
from typing import Any

from .hook import hook_of
from .scheduler import SchedulerRefused
from .verbs import HOLD_S_MAX, class_now, hold, hold_now, need_now, set_class, set_need
from .words import Unable, WordsRefused, seconds_of

CELL_USAGE = """usage:
  %%gpushare --class batch   run this cell as `batch`, `interactive` or `realtime`
  %%gpushare --need 40GiB    say that this kernel needs so much while the cell runs
  %%gpushare --hold          keep the GPU until the cell ends; `--hold 10m`: for so long at most
  Several options may stand in the line."""


def begin(line: str, shell: Any, reporter: Any, notice: str) -> str:
    """What there is to print; empty when all is well. The cell runs in any case.

    `reporter` is the bootstrap's: it knows which cell this is, and when it has ended. A silent run
    has no end that could be heard of, and runs as ever. `notice` is why this kernel does not share
    the GPU, where it does not."""
    said = []
    try:
        wanted = wanted_options(line.split())
        hook = hook_of(notice)
        cell = reporter.cell_here() if reporter is not None else None
        if cell is None:
            return ""
        put_back = _PutBack(shell, reporter, cell)
        for name, change in _CHANGES:  # a need that cannot be read comes first
            if name in wanted:
                try:
                    change(put_back, wanted[name], hook)
                except Unable as error:
                    said += [str(error)] if str(error) not in said else []
    except WordsRefused as error:
        return f"%%gpushare: {error} This cell runs as ever.\n{CELL_USAGE}"
    except Unable as error:
        return str(error)
    return "\n".join(said)


def wanted_options(words: "list[str]") -> Any:
    """What is asked for, by option. Raises UsageError. Pure."""
    wanted: Any = {}
    rest = list(words)
    while rest:
        option = rest.pop(0)
        name = option[2:] if option[:2] == "--" else ""
        if name not in ("class", "need", "hold"):
            raise WordsRefused(f"{option!r} is not an option.")
        if name in wanted:
            raise WordsRefused(f"{option} stands there twice.")
        value = rest.pop(0) if rest and rest[0][:2] != "--" else ""
        if name == "hold":
            wanted[name] = seconds_of(value) if value else HOLD_S_MAX
        elif value:
            wanted[name] = value
        else:
            raise WordsRefused(f"{option} needs {'one name' if name == 'class' else 'an amount'}.")
    if not wanted:
        raise WordsRefused("it needs an option.")
    return wanted


def _change_need(put_back: "_PutBack", need: str, _: Any) -> None:
    before = need_now()
    put_back.change("need", lambda: set_need(need), lambda: set_need(before))


def _change_class(put_back: "_PutBack", name: str, _: Any) -> None:
    before = class_now()
    put_back.change(f"class {before}", lambda: set_class(name), lambda: set_class(before))


def _change_hold(put_back: "_PutBack", hold_s: float, hook: Any) -> None:
    """A hold of before goes on for as long as it would have, or waits for its turn again."""
    left_s, has_begun = hold_now(hook)
    began_s = time.monotonic()

    def undo() -> None:
        passed_s = time.monotonic() - began_s if has_begun else 0.0
        hold(hook, max(0.0, left_s - passed_s))

    put_back.change("hold", lambda: hold(hook, hold_s), undo)


_CHANGES: Any = (("need", _change_need), ("class", _change_class), ("hold", _change_hold))


class _PutBack:
    """At the end of the cell, whatever ends it, all is as before."""

    def __init__(self, shell: Any, reporter: Any, cell: Any) -> None:
        self._events, self._undos = shell.events, []  # type: ignore[var-annotated]
        self._reporter, self._cell = reporter, cell
        self._events.register("post_run_cell", self.cell_ended)

    def change(self, what: str, do: Any, undo: Any) -> None:
        """An interrupt or a scheduler that is late may come after the deed, a refusal does not."""
        self._undos.append((what, undo))
        try:
            do()
        except (SchedulerRefused, WordsRefused):
            self._undos.pop()
            raise

    def cell_ended(self, result: Any = None) -> None:
        """IPython's event, of which the reporter has heard before. Others may end in this cell."""
        if self._reporter.is_running(self._cell):
            return
        self._events.unregister("post_run_cell", self.cell_ended)
        while self._undos:
            what, undo = self._undos.pop()
            try:
                undo()
            except (Unable, WordsRefused) as error:
                print(f"What this kernel had before is not put back ({what}): {error}")
