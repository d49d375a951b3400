"""Contexts, streams and waits are told to the runtime; a context takes its memory along."""

from __future__ import annotations

import pytest

from tests.hook.session import Session


@pytest.mark.promise("hook-38", "Contexts, also primary and green ones, take their memory along")
@pytest.mark.promise("hook-10")
def test_the_context_takes_its_memory_along(session: Session) -> None:
    """What was allocated in a context that is destroyed is gone with it, and only that."""
    session.run(
        "alloc(MIB)",
        "context = made('cuCtxCreate_v2', 0, 0)",
        "call('cuCtxSetCurrent', c_void_p(context))",
        "alloc(2 * MIB)",
        "call('cuCtxDestroy_v2', c_void_p(context))",
    )
    assert session.memory() == [(1, 1), (3, 3), (1, 1)]
    assert session.told("device_opened", "device_closed") == ["device_opened 0", "device_closed 0"]


@pytest.mark.promise("hook-38")
def test_a_primary_context_opens_once_and_closes_with_its_last_release(session: Session) -> None:
    """Retained twice and released twice it is opened and closed once; a reset closes at once."""
    retain = "call('cuDevicePrimaryCtxRetain', byref(POINTER), 0)"
    release = "call('cuDevicePrimaryCtxRelease_v2', 0)"
    both = ["device_opened 0", "device_closed 0"]
    session.run(retain, retain, "alloc(MIB)", release)
    assert session.told("device_opened", "device_closed") == both[:1]
    session.run(retain, retain, "alloc(MIB)", release, release, release)
    assert session.told("device_opened", "device_closed") == both
    assert session.memory()[-1] == (0, 0)
    session.run(retain, retain, "call('cuDevicePrimaryCtxReset_v2', 0)", release, retain)
    assert session.told("device_opened", "device_closed") == [*both, both[0]]


@pytest.mark.promise("hook-38")
def test_a_green_context_is_told_as_its_context(session: Session) -> None:
    """A process may have green contexts alone."""
    session.run("made('cuGreenCtxCreate', c_void_p(0), 0, 1)")
    assert session.told("device_opened") == ["device_opened 0"]


def test_the_mover_leaves_a_green_context_that_is_closed(session: Session) -> None:
    """It may have opened a stream there, which goes with the context."""
    session.run(
        "green = made('cuGreenCtxCreate', c_void_p(0), 0, 1)",
        "call('cuGreenCtxDestroy', c_void_p(green))",
    )
    assert session.told("mover_forgets", "device_closed") == ["mover_forgets 1", "device_closed 0"]


def test_streams_synchronising_and_the_first_init_are_told(session: Session) -> None:
    """cuInit once however often it is called, streams as they come and go, waits from both ends."""
    printed = session.run(
        "call('cuInit', 0), call('cuInit', 0), made('cuDevicePrimaryCtxRetain', 0)",
        "s = made('cuStreamCreate', 1)",
        "print(streams_and_captures())",
        "call('cuCtxSynchronize')",
        "call('cuStreamDestroy_v2', c_void_p(s))",
        "print(streams_and_captures())",
    )
    assert printed == ["(1, 0)", "(0, 0)"]
    assert session.told("cuda_opened") == ["cuda_opened"]
    waits = session.told("synchronise_began", "synchronise_ended")
    assert waits == ["synchronise_began", "synchronise_ended 0"]
