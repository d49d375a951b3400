"""What is on a device and nobody's: told from samples that are never taken at the right moment."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.ids import ClientId, TenantId
from jupyter_gpushare.core.ledger import DeviceMemory, Share

from .memory_desk import MemoryDesk

GIB = 1 << 30
CONTEXTS = 2 * GIB


def memory_of(*resident_gib: int) -> tuple[DeviceMemory, list[Share]]:
    """Clients that have had so much for a while, beside two contexts."""
    memory = DeviceMemory()
    memory.measured(CONTEXTS, 0.0)
    shares = []
    for number, gib in enumerate(resident_gib, start=1):
        share = memory.open(ClientId(number), TenantId(f"t{number}"))
        shares.append(share)
        report(memory, share, gib * GIB)
    for now_s in (1.0, 2.0, 3.0):
        memory.measured(CONTEXTS + sum(resident_gib) * GIB, now_s)
    return memory, shares


def report(
    memory: DeviceMemory, share: Share, allocated: int, parked: int = 0, serial: int = 0
) -> None:
    share.reported(allocated=allocated, parked=parked, fixed=0, parkable=allocated, serial=serial)
    memory.note()


def test_memory_that_changes_hands_between_two_samples_is_nobodys_for_no_moment() -> None:
    """One frees 16 GiB and another one brings 16 GiB back: the sample after that shows as many used
    bytes as before, and none of them are foreign."""
    memory, (alice, bob) = memory_of(16, 0)
    report(memory, alice, 0)
    report(memory, bob, 16 * GIB)
    memory.measured(CONTEXTS + 16 * GIB, 4.0)
    assert memory.bytes_foreign == CONTEXTS


def test_a_sample_from_before_a_free_is_not_taken_for_foreign_bytes() -> None:
    """The device was looked at while the memory was still there; the report was faster."""
    memory, (alice,) = memory_of(16)
    report(memory, alice, 0)
    memory.measured(CONTEXTS + 16 * GIB, 4.0)
    assert memory.bytes_foreign == CONTEXTS
    memory.measured(CONTEXTS, 5.0)
    assert memory.bytes_foreign == CONTEXTS


def test_what_a_client_has_not_told_yet_is_not_foreign() -> None:
    """It has allocated within its budget, and is about to say so."""
    memory, (alice,) = memory_of(0)
    alice.told(1, 100 * GIB)
    memory.note()
    memory.measured(CONTEXTS + 16 * GIB, 3.05)
    report(memory, alice, 16 * GIB, serial=1)
    memory.measured(CONTEXTS + 16 * GIB, 3.1)
    assert memory.bytes_foreign == CONTEXTS


def test_foreign_bytes_that_grow_are_seen_when_the_clients_rest() -> None:
    """A further context is opened while a client has an unused budget."""
    memory, (alice,) = memory_of(16)
    alice.told(1, 100 * GIB)
    report(memory, alice, 16 * GIB, serial=1)
    memory.measured(CONTEXTS + 16 * GIB, 4.0)
    for now_s in (5.0, 6.0):
        memory.measured(CONTEXTS + GIB + 16 * GIB, now_s)
    assert memory.bytes_foreign == CONTEXTS + GIB


def test_foreign_bytes_beyond_every_budget_are_seen_at_once() -> None:
    """Whatever the clients have not told yet, they cannot have so much."""
    memory, _ = memory_of(16)
    memory.measured(CONTEXTS + 16 * GIB + 50 * GIB, 3.1)
    assert memory.bytes_foreign == CONTEXTS + 50 * GIB


def test_foreign_bytes_that_go_are_seen_at_once() -> None:
    """What is not on the device is nobody's."""
    memory, _ = memory_of(16)
    memory.measured(16 * GIB, 3.1)
    assert memory.bytes_foreign == 0


def kept_by_driver(memory: DeviceMemory, share: Share, allocated: int, kept: int) -> None:
    """All of it is parked, and is managed memory, of which the driver keeps the pages."""
    share.reported(allocated=allocated, parked=allocated, fixed=0, parkable=0, serial=0, kept=kept)
    memory.note()


@pytest.mark.promise(
    "accounts-23",
    "Device memory that the driver keeps of parked managed memory is not taken for foreign, and "
    "what is foreign beside it is still known when others have got it",
)
def test_what_the_driver_keeps_of_parked_memory_is_not_foreign() -> None:
    """The device counts it as used, for as long as nobody needs it; and then no more, which nobody
    tells."""
    memory, (alice, bob) = memory_of(16, 0)
    kept_by_driver(memory, alice, 16 * GIB, 16 * GIB)
    for now_s in (4.0, 5.0, 6.0):
        memory.measured(CONTEXTS + 16 * GIB, now_s)
        assert memory.bytes_foreign == CONTEXTS
    report(memory, bob, 16 * GIB)
    for now_s in (7.0, 8.0, 9.0):
        memory.measured(CONTEXTS + 16 * GIB, now_s)
        assert memory.bytes_foreign == CONTEXTS
    report(memory, bob, 0)
    report(memory, alice, 16 * GIB)
    for now_s in (10.0, 11.0, 12.0):
        memory.measured(CONTEXTS + 16 * GIB, now_s)
        assert memory.bytes_foreign == CONTEXTS


@pytest.mark.promise("accounts-23")
def test_a_sample_from_before_kept_memory_comes_back_shows_nothing_foreign() -> None:
    """The device was looked at while the driver kept pages beside memory of another client; by the
    time the sample arrives, that has left and the pages are their owner's again."""
    memory, (alice, bob) = memory_of(8, 16)
    kept_by_driver(memory, alice, 16 * GIB, 16 * GIB)
    memory.measured(CONTEXTS + 32 * GIB, 4.0)
    assert memory.bytes_foreign == CONTEXTS
    report(memory, bob, 0)
    report(memory, alice, 16 * GIB)
    memory.measured(CONTEXTS + 32 * GIB, 4.1)
    assert memory.bytes_foreign == CONTEXTS


@pytest.mark.promise("accounts-23")
def test_foreign_bytes_grow_beside_what_is_kept() -> None:
    """Beyond what may be kept they are seen."""
    memory, (alice,) = memory_of(16)
    kept_by_driver(memory, alice, 16 * GIB, 16 * GIB)
    for now_s in (4.0, 5.0, 6.0):
        memory.measured(CONTEXTS + 40 * GIB, now_s)
    assert memory.bytes_foreign == CONTEXTS + 24 * GIB


@pytest.mark.promise("accounts-23")
def test_what_is_kept_is_not_taken_for_memory_of_one_that_has_ended() -> None:
    """Whose memory counts until the device shows that it is free, which pages of others do not
    delay. What an importer still has of it counts on."""
    memory, (alice, bob) = memory_of(16, 24)
    kept_by_driver(memory, alice, 16 * GIB, 16 * GIB)
    memory.lose(bob, 4.0)
    memory.measured(CONTEXTS + 40 * GIB, 4.1)
    assert memory.bytes_ghost == 24 * GIB
    for now_s, ghost in ((4.2, 20 * GIB), (8.9, 20 * GIB), (9.0, 4 * GIB), (9.1, 4 * GIB)):
        memory.measured(CONTEXTS + 20 * GIB, now_s)
        assert memory.bytes_foreign + memory.bytes_ghost == CONTEXTS + ghost


@pytest.mark.promise("accounts-23")
def test_a_first_look_counts_what_may_be_kept() -> None:
    """After a restart of the scheduler, say; and a client keeps no more than it has parked."""
    memory = DeviceMemory()
    share = memory.open(ClientId(1), TenantId("t1"))
    kept_by_driver(memory, share, 16 * GIB, 100 * GIB)
    assert memory.totals.bytes_kept == 16 * GIB
    memory.measured(CONTEXTS + 16 * GIB, 1.0)
    assert memory.bytes_foreign == CONTEXTS
    memory.close(share)
    assert memory.totals.bytes_kept == 0


def test_a_budget_that_went_up_and_down_between_two_samples_was_there() -> None:
    """The client used it in that moment, and has freed all of that before it tells what it has."""
    desk = MemoryDesk()
    client = desk.with_memory("a", 1000)
    for _ in range(3):
        desk.measure(1000, after_s=0.5)
    desk.ask(client)
    assert desk.budget(client) > 6000
    desk.set(device_reserve_bytes=5000)
    assert desk.budget(client) < 4000
    desk.report(client)
    desk.measure(6000)
    assert desk.device().bytes_foreign == 0
