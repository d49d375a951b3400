"""`%gpushare`: this kernel and the queue; giving a turn away; keeping one by hand.

The bootstrap loads this folder by its path when the magic is first used, in kernels of any
environment: so it stands alone, like the bootstrap, standard library only and for Python 3.6 and
later. It asks the hook in this process about this kernel, and the scheduler about everybody.
"""

from typing import Any

from .caches import CACHES
from .cell import begin
from .explain import Explained
from .scheduler import scheduler_status
from .table import USAGE, completions, perform
from .trimming import trim_now
from .view import NotebookView, memory_bar, notes_on_memory, notes_on_waiting, rows_of
from .words import Unable, WordsRefused

__all__ = [
    "CACHES",
    "USAGE",
    "Explained",
    "NotebookView",
    "begin",
    "completions",
    "gpushare",
    "memory_bar",
    "notes_on_memory",
    "notes_on_waiting",
    "rows_of",
    "scheduler_status",
    "trim_now",
]


def gpushare(line: str, *, notice: str = "") -> Any:
    """What the magic does. Answers with something to display, or prints a sentence.

    `notice` is why this kernel does not share the GPU, where it does not."""
    try:
        done = perform(line.split(), notice)
    except WordsRefused as error:
        done = f"%gpushare: {error}\n{USAGE}"
    except Unable as error:
        done = str(error)
    if not isinstance(done, str):
        return done
    print(done)
    return None
