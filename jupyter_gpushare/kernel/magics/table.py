"""The sub-commands of `%gpushare`, each once: dispatch, usage and the Tab key read this table."""

from typing import Any, NamedTuple

from .explain import explain
from .hook import hook_of
from .verbs import doctor, evict, hold, queue, release, set_class, show
from .words import Unable, UsageError, seconds_of


class Verb(NamedTuple):
    """A sub-command, of at most one argument."""

    name: str
    # Each form after `%gpushare`, and what it does.
    usage: "tuple[tuple[str, str], ...]"
    # Gets the argument, and why this kernel does not share the GPU, if it does not.
    run: Any
    # What the argument is; empty where there is none.
    argument: str = ""
    # What the Tab key offers for the argument.
    offers: "tuple[str, ...]" = ()


def _hold(time: str, notice: str) -> Any:
    hold_s = seconds_of(time)
    return hold(hook_of(notice), hold_s)


def _set_class(name: str, notice: str) -> Any:
    hook_of(notice)
    return set_class(name)


VERBS = (
    Verb("", (("", "show this kernel and the queue"),), lambda _, notice: show(notice)),
    Verb(
        "queue",
        (("queue", "show who has each GPU and who waits"),),
        lambda _, notice: queue(notice),
    ),
    Verb(
        "explain",
        (("explain", "tell why the last cell waited for the GPU"),),
        lambda _, notice: explain(notice),
    ),
    Verb(
        "release",
        (("release", "give the GPU to the next in the queue now, and end a hold"),),
        lambda _, notice: release(hook_of(notice)),
    ),
    Verb(
        "hold",
        (
            ("hold 10m", "keep the GPU between cells for 10 minutes (30s, 10m, 1h)"),
            ("hold 0", "end the hold"),
        ),
        _hold,
        "a time",
        ("0", "30s", "5m", "10m", "30m", "1h"),
    ),
    Verb(
        "class",
        (("class batch", "run as `batch`, `interactive` or `realtime` from now on"),),
        _set_class,
        "a name",
        ("batch", "interactive", "realtime"),
    ),
    Verb(
        "evict",
        (("evict", "make the memory of this kernel leave the GPU until it is used again"),),
        lambda _, notice: evict(hook_of(notice)),
    ),
    Verb(
        "doctor",
        (("doctor", "find out what is wrong with GPU sharing here, and what to do"),),
        lambda *_: doctor(),
    ),
)

_ON_OR_OFF = (
    "A kernel cannot leave or join the sharing while it runs, because its GPU work would disturb "
    "others. Ask an administrator about a kernel that shall not share the GPU."
)
CANNOT = {
    "need": "A kernel is placed on a GPU before it starts, so its need cannot change now. "
    "Set GPUSHARE_NEED or the need in the kernelspec, and restart the kernel.",
    "trim": "The caches of frameworks are not trimmed yet. `%gpushare evict` makes the memory of "
    "this kernel leave the GPU.",
    "off": _ON_OR_OFF,
    "on": _ON_OR_OFF,
}
"""What people may look for, and why it is not there."""

_CELL = "  %%gpushare --class batch, as the first line of a cell: this cell alone has the class"


def _usage() -> str:
    forms = [("%gpushare " + form, what) for verb in VERBS for form, what in verb.usage]
    width = max(len(form) for form, _ in forms)
    lines = [f"  {form.ljust(width)} {what}" for form, what in forms]
    return "\n".join(["usage:", *lines, _CELL])


USAGE = _usage()


def perform(words: "list[str]", notice: str) -> Any:
    """What the sub-command answers. Raises UsageError and Unable."""
    name, arguments = (words[0], words[1:]) if words else ("", [])
    if name in CANNOT:
        raise Unable(CANNOT[name])
    verb = next((each for each in VERBS if each.name == name), None)
    if verb is None:
        raise UsageError(f"there is no sub-command {name!r}.")
    wanted = 1 if verb.argument else 0
    if len(arguments) > wanted:
        raise UsageError(f"{arguments[wanted]!r} is one word too many.")
    if len(arguments) < wanted:
        raise UsageError(f"{name} needs {verb.argument}.")
    return verb.run("".join(arguments), notice)


def completions(line: str) -> "list[str]":
    """What the Tab key offers; no scheduler is asked while somebody types. `line` is the line up
    to the cursor, the magic's name included. Pure."""
    words = line.split()[1:]
    if line[-1:].isspace() or not words:
        words.append("")
    *before, begun = words
    offered = [verb.name for verb in VERBS if verb.name] if not before else []
    if len(before) == 1:
        offered = [word for verb in VERBS if verb.name == before[0] for word in verb.offers]
    return [word for word in offered if word.startswith(begun)]
