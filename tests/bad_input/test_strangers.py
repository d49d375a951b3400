"""Peers that break the rules at the real socket, beside processes under the real hook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.codec import encode
from jupyter_gpushare.protocol.messages import RefusalCode, TurnRequested
from tests.kernel.conftest import SharedGpu
from tests.support.hook_client import ScriptedClient

Bystanders = Callable[[], None]
WHOLE = encode(TurnRequested(request_id=1, cause="cuLaunchKernel"))


def garbage(peer: ScriptedClient) -> None:
    peer.send_raw(bytes(range(255, 0, -1)) * 16)


def frame_of_10_mb(peer: ScriptedClient) -> None:
    body = bytes(10 << 20)
    # The scheduler need not take all of it.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        peer.send_raw(WHOLE[:4] + len(body).to_bytes(4, "little") + body)


def another_version(peer: ScriptedClient) -> None:
    peer.send_raw((int.from_bytes(WHOLE[:2], "little") + 1).to_bytes(2, "little") + WHOLE[2:])


def wrong_token(peer: ScriptedClient) -> None:
    peer.hello("c29tZWJvZHk.c29tZWJvZHk")


MISDEEDS = [
    (garbage, RefusalCode.WRONG_VERSION),
    (frame_of_10_mb, RefusalCode.BAD_PROTOCOL),
    (another_version, RefusalCode.WRONG_VERSION),
    (wrong_token, RefusalCode.BAD_TOKEN),
]


@pytest.mark.promise("bad-input-12")
@pytest.mark.promise("bad-input-14")
@pytest.mark.promise(
    "bad-input-10",
    "Garbage: that peer loses its connection and its turn, nothing else happens",
)
@pytest.mark.promise("bad-input-11", "A 10 MB frame: likewise")
@pytest.mark.parametrize(
    ("misdeed", "code"), MISDEEDS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_stranger_disturbs_nobody(
    shared: SharedGpu,
    bystanders: Bystanders,
    misdeed: Callable[[ScriptedClient], None],
    code: RefusalCode,
) -> None:
    """It is refused in two sentences; tenants compute while it is there and after it is gone, on
    connections that were never lost."""
    tenants_before = clients_of(shared)
    with shared.scheduler.connect() as peer:
        misdeed(peer)
        bystanders()
        refused = peer.expect_refused()
    assert refused.code is code
    assert says_what_is_wrong_and_what_to_do(refused.message)
    bystanders()
    assert clients_of(shared) == tenants_before


@pytest.mark.promise("bad-input-10")
@pytest.mark.promise("bad-input-11")
@pytest.mark.parametrize(
    "misdeed", [garbage, frame_of_10_mb, another_version], ids=lambda f: f.__name__
)
def test_a_holder_that_breaks_the_rules_loses_its_turn_alone(
    shared: SharedGpu, bystanders: Bystanders, misdeed: Callable[[ScriptedClient], None]
) -> None:
    """A client that has the turn and breaks the rules loses both; those who wait are served."""
    shared.scheduler.client.change_settings({"quantum_s": 600})
    device = bytes.fromhex(shared.scheduler.status()["devices"][0]["id"])
    with shared.scheduler.joined("rogue", device=device) as rogue:
        rogue.take_turn()
        misdeed(rogue)
        bystanders()
        assert says_what_is_wrong_and_what_to_do(rogue.expect_refused().message)


def says_what_is_wrong_and_what_to_do(message: str) -> bool:
    """Two sentences."""
    return message.count(". ") == 1 and message.endswith(".")


def clients_of(shared: SharedGpu) -> list[tuple[str, list[int]]]:
    """Each tenant with the processes that are connected."""
    tenants = shared.scheduler.status()["tenants"]
    return [(t["name"], [client["pid"] for client in t["clients"]]) for t in tenants]
