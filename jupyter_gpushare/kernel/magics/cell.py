"""`%%gpushare --class batch`: what holds for one cell alone.

The bootstrap makes a line of it that the cell begins with, and leaves the rest of the cell as it
is: so `await`, results, history and tracebacks are those of a plain cell.
"""

from typing import Any

from .verbs import class_now, set_class
from .words import Unable, UsageError

CELL_USAGE = """usage:
  %%gpushare --class batch   run this cell as `batch`, `interactive` or `realtime`"""
_NO_NEED = (
    "a kernel is placed before it starts, so a cell cannot need memory. Set GPUSHARE_NEED or the "
    "need in the kernelspec, and restart the kernel."
)


def begin(line: str, shell: Any, reporter: Any) -> str:
    """What there is to print; empty when all is well. The cell runs in any case.

    `reporter` is the bootstrap's: it knows which cell this is, and when it has ended. A silent run
    has no end that could be heard of, and runs as ever."""
    try:
        wanted, undo = wanted_class(line.split()), class_now()
        cell = reporter.cell_here() if reporter is not None else None
        if cell is not None:
            set_class(wanted)
            _PutBack(shell, undo, reporter, cell)
    except UsageError as error:
        return f"%%gpushare: {error} This cell runs as ever.\n{CELL_USAGE}"
    except Unable as error:
        return str(error)
    return ""


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


class _PutBack:
    """At the end of the cell, whatever ends it, the class of before is back."""

    def __init__(self, shell: Any, undo: str, reporter: Any, cell: Any) -> None:
        self._events, self._undo = shell.events, undo
        self._reporter, self._cell = reporter, cell
        self._events.register("post_run_cell", self.cell_ended)

    def cell_ended(self, result: Any = None) -> None:
        """IPython's event, of which the reporter has heard before. Others may end in this cell."""
        if self._reporter.is_running(self._cell):
            return
        self._events.unregister("post_run_cell", self.cell_ended)
        try:
            set_class(self._undo)
        except Unable as error:
            print(f"The class of this kernel was not put back to {self._undo}: {error}")
