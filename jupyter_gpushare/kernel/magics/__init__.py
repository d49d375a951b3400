"""`%gpushare`: this kernel and the queue; giving a turn away; keeping one by hand.

The bootstrap loads this folder by its path when the magic is first used, in kernels of any
environment: so it stands alone, like the bootstrap, standard library only and for Python 3.6 and
later. It asks the hook in this process about this kernel, and the scheduler about everybody.
"""

from typing import Any

from .cell import begin
from .completion import completions
from .hook import hook_of
from .scheduler import scheduler_status
from .verbs import doctor, evict, hold, queue, release, set_class, show
from .view import View, memory_bar, notes_on_memory, notes_on_waiting, rows_of
from .words import Unable, UsageError, seconds_of

__all__ = [
    "USAGE",
    "View",
    "begin",
    "completions",
    "gpushare",
    "memory_bar",
    "notes_on_memory",
    "notes_on_waiting",
    "rows_of",
    "scheduler_status",
]

USAGE = """usage:
  %gpushare             show this kernel and the queue
  %gpushare queue       show who has each GPU and who waits
  %gpushare release     give the GPU to the next in the queue now, and end a hold
  %gpushare hold 10m    keep the GPU between cells for 10 minutes (30s, 10m, 1h)
  %gpushare hold 0      end the hold
  %gpushare class batch run as `batch`, `interactive` or `realtime` from now on
  %gpushare evict       make the memory of this kernel leave the GPU until it is used again
  %gpushare doctor      find out what is wrong with GPU sharing here, and what to do
  %%gpushare --class batch, as the first line of a cell: this cell alone has the class"""

_WORDS_AFTER = {"queue": 0, "release": 0, "hold": 1, "class": 1, "evict": 0, "doctor": 0}

_ON_OR_OFF = (
    "A kernel cannot leave or join the sharing while it runs, because its GPU work would disturb "
    "others. Ask an administrator about a kernel that shall not share the GPU."
)
_CANNOT = {
    "need": "A kernel is placed on a GPU before it starts, so its need cannot change now. "
    "Set GPUSHARE_NEED or the need in the kernelspec, and restart the kernel.",
    "trim": "The caches of frameworks are not trimmed yet. `%gpushare evict` makes the memory of "
    "this kernel leave the GPU.",
    "off": _ON_OR_OFF,
    "on": _ON_OR_OFF,
}
"""What people may look for, and why it is not there."""


def gpushare(line: str, *, notice: str = "") -> Any:
    """What the magic does. Answers with something to display, or prints a sentence.

    `notice` is why this kernel does not share the GPU, where it does not."""
    try:
        done = _perform(line.split(), notice)
    except UsageError as error:
        done = f"%gpushare: {error}\n{USAGE}"
    except Unable as error:
        done = str(error)
    if not isinstance(done, str):
        return done
    print(done)
    return None


def _perform(words: "list[str]", notice: str) -> Any:
    if not words:
        return show(notice)
    if words[0] in _CANNOT:
        raise Unable(_CANNOT[words[0]])
    verb, wanted = words[0], _WORDS_AFTER.get(words[0])
    if wanted is None:
        raise UsageError(f"there is no sub-command {verb!r}.")
    if len(words) - 1 > wanted:
        raise UsageError(f"{words[wanted + 1]!r} is one word too many.")
    if verb == "hold":
        if len(words) == 1:
            raise UsageError("hold needs a time.")
        hold_s = seconds_of(words[1])
        return hold(hook_of(notice), hold_s)
    if verb == "class":
        if len(words) == 1:
            raise UsageError("class needs a name.")
        hook_of(notice)
        return set_class(words[1])
    if verb == "doctor":
        return doctor()
    if verb == "queue":
        return queue(notice)
    return release(hook_of(notice)) if verb == "release" else evict(hook_of(notice))
