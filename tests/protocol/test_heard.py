"""Each message of the schema means something to the side that it is for.

Neither side complains of a message that it has no case for: a forgotten one would be lost in
silence.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from jupyter_gpushare.core import events, node_events, scheduler
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.protocol import messages
from jupyter_gpushare.protocol.fields import Message, Side
from jupyter_gpushare.protocol.messages import MESSAGE_TYPES
from jupyter_gpushare.scheduler.hook.translate import event_of

from .samples import Golden, golden

AGENT = Path(__file__).resolve().parents[2] / "hook" / "src" / "agent"
NO_EVENT = (
    messages.Hello,
    messages.MemoryQueried,
    messages.MemoryKindsReported,
    messages.HostMemoryReported,
)
"""The first message of a connection, which is read where it is accepted; a question; and what is
only shown."""

TO_SCHEDULER = [sample for sample in golden() if sample.message.TO is Side.SCHEDULER]
TO_HOOK = [kind for kind in MESSAGE_TYPES.values() if kind.TO is Side.HOOK]


@pytest.mark.parametrize("sample", TO_SCHEDULER, ids=lambda sample: sample.what)
def test_a_message_of_a_hook_becomes_an_event(sample: Golden) -> None:
    """Or it changes nothing, and stands above."""
    event = event_of(ClientId(1), sample.message)
    assert (event is None) == isinstance(sample.message, NO_EVENT)


@pytest.mark.parametrize("kind", TO_HOOK, ids=lambda kind: kind.__name__)
def test_the_agent_has_a_case_for_a_message(kind: type[Message]) -> None:
    """In one of its files; `Welcome` and the like where a connection begins."""
    constant = "MESSAGE_" + re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).upper()
    sources = "\n".join(path.read_text() for path in AGENT.glob("*.c"))
    assert re.search(rf"(case|==|!=) {constant}\b", sources), f"nobody hears {constant}"


def test_the_core_has_a_case_for_each_event() -> None:
    """For each class that has no class below it."""
    trees = [ast.parse(inspect.getsource(each)) for each in (scheduler, node_events)]
    named = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "ev"
    }
    kinds = [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event) and not kind.__subclasses__()
    ]
    assert len(kinds) > 20
    assert not {kind.__name__ for kind in kinds} - named
