"""`%%gpushare --class batch`: what holds for one cell alone.

The bootstrap makes a line of it that the cell begins with, and leaves the rest of the cell as it
is: so `await`, results, history and tracebacks are those of a plain cell.
"""

import threading
from typing import Any

from .verbs import class_now, set_class
from .words import Unable, UsageError

CELL_USAGE = """usage:
  %%gpushare --class batch   run this cell as `batch`, `interactive` or `realtime`"""
_NO_NEED = (
    "a kernel is placed before it starts, so a cell cannot need memory. Set GPUSHARE_NEED or the "
    "need in the kernelspec, and restart the kernel."
)


def begin(line: str, shell: Any) -> str:
    """What there is to print; empty when all is well. The cell runs in any case."""
    undo, said = "", ""
    try:
        wanted = wanted_class(line.split())
        undo = class_now()
        set_class(wanted)
    except UsageError as error:
        undo, said = "", f"%%gpushare: {error} This cell runs as ever.\n{CELL_USAGE}"
    except Unable as error:
        undo, said = "", str(error)
    _PutBack(shell, undo)
    return said


def wanted_class(words: "list[str]") -> str:
    """The class in the options. Raises UsageError. Pure."""
    if words[:1] == ["--need"]:
        raise UsageError(_NO_NEED)
    if words[:1] != ["--class"]:
        what = repr(words[0]) + " is not an option" if words else "it needs an option"
        raise UsageError(what + ".")
    if len(words) != 2:
        raise UsageError("--class needs one name.")
    return words[1]


_running: Any = []
"""One for each cell that runs with options, the innermost last."""


class _PutBack:
    """At the end of the cell, whatever ends it, the class of before is back."""

    def __init__(self, shell: Any, undo: str) -> None:
        self._events, self._undo, self._thread = shell.events, undo, threading.get_ident()
        _running.append(self)
        self._events.register("post_run_cell", self.cell_ended)

    def cell_ended(self, result: Any = None) -> None:
        """IPython's event; cells in this one end before it, and others run on other threads."""
        code = getattr(getattr(result, "info", None), "raw_cell", "") or ""
        mine = [each for each in _running if each._thread == self._thread]
        if threading.get_ident() != self._thread or mine[-1:] != [self]:
            return
        if not code.lstrip().startswith("%%gpushare"):
            return
        _running.remove(self)
        self._events.unregister("post_run_cell", self.cell_ended)
        if self._undo:
            try:
                set_class(self._undo)
            except Unable as error:
                print(f"The class of this kernel was not put back to {self._undo}: {error}")
