"""The sub-commands of `%gpushare`, each once: dispatch, usage and the Tab key read this table."""

from typing import Any, NamedTuple

from .explain import explain
from .hook import hook_of
from .leaving import come_back, leave
from .verbs import (
    NO_NEED,
    doctor,
    evict,
    hold,
    queue,
    release,
    set_class,
    set_need,
    show,
    show_need,
    trim,
)
from .words import WordsRefused, seconds_of


class Verb(NamedTuple):
    """A sub-command."""

    name: str
    # Each form after `%gpushare`, and what it does.
    usage: "tuple[tuple[str, str], ...]"
    # Gets the words that follow as one text, and why this kernel does not share the GPU, if so.
    run: Any
    # What it has to be followed by; empty where nothing has to.
    argument: str = ""
    # What the Tab key offers for the argument.
    offers: "tuple[str, ...]" = ()
    # So many words may follow, if not one argument or none.
    words_max: int = 0


def _hold(time: str, notice: str) -> Any:
    hold_s = seconds_of(time)
    return hold(hook_of(notice), hold_s)


def _set_class(name: str, notice: str) -> Any:
    hook_of(notice)
    return set_class(name)


def _trim(word: str, notice: str) -> Any:
    hook_of(notice)
    return trim(word)


def _need(words: str, notice: str) -> Any:
    """`20GiB`, `20 GiB`, and a number of devices; nothing shows what there is."""
    hook_of(notice)
    amount, _, devices = words.partition(" ")
    if devices and not devices.isdigit():
        amount, devices = amount + devices, ""
    return set_need(amount, devices) if amount else show_need()


VERBS = (
    Verb("", (("", "show this kernel and the queue"),), lambda _, notice: show(notice)),
    Verb("status", (("status", "the same"),), lambda _, notice: show(notice)),
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
        "need",
        (
            ("need", "show what this kernel has said that it needs, and where it was placed"),
            ("need 20GiB", "say that it needs so much on its GPU; `need none` takes that back"),
        ),
        _need,
        offers=(NO_NEED,),
        words_max=2,
    ),
    Verb(
        "trim",
        (
            ("trim", "show what the caches of PyTorch and CuPy have given back"),
            ("trim off", "let them keep what they do not use; `trim on` is how a kernel starts"),
        ),
        _trim,
        offers=("on", "off"),
        words_max=1,
    ),
    Verb(
        "evict",
        (("evict", "make the memory of this kernel leave the GPU until it is used again"),),
        lambda _, notice: evict(hook_of(notice)),
    ),
    Verb(
        "off",
        (("off", "leave GPU sharing at the next restart, where the server allows it"),),
        lambda _, notice: leave(notice),
    ),
    Verb(
        "on",
        (("on", "share the GPU again at the next restart"),),
        lambda _, notice: come_back(notice),
    ),
    Verb(
        "doctor",
        (("doctor", "find out what is wrong with GPU sharing here, and what to do"),),
        lambda *_: doctor(),
    ),
    Verb("help", (("help", "show these lines"),), lambda *_: _usage()),
)

_CELL = """  %%gpushare --class batch --need 40GiB --hold
                        for one cell alone: its first line, with one of these or several"""


def _usage() -> str:
    forms = [("%gpushare " + form, what) for verb in VERBS for form, what in verb.usage]
    width = max(len(form) for form, _ in forms)
    lines = [f"  {form.ljust(width)} {what}" for form, what in forms]
    return "\n".join(["usage:", *lines, _CELL])


USAGE = _usage()


def perform(words: "list[str]", notice: str) -> Any:
    """What the sub-command answers. Raises UsageError and Unable (words.py)."""
    name, arguments = (words[0], words[1:]) if words else ("", [])
    verb = next((each for each in VERBS if each.name == name), None)
    if verb is None:
        raise WordsRefused(f"there is no sub-command {name!r}.")
    most = verb.words_max or (1 if verb.argument else 0)
    if len(arguments) > most:
        raise WordsRefused(f"{arguments[most]!r} is one word too many.")
    if verb.argument and not arguments:
        raise WordsRefused(f"{name} needs {verb.argument}.")
    return verb.run(" ".join(arguments), notice)


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
