"""Devices that only clients know of, and what becomes of what they say."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.events import DeviceFound, DeviceLost, DeviceWithdrawn
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.scheduler.devices.named import (
    NAMED_BY_CLIENT_MAX,
    NAMED_MAX,
    DeviceBook,
    NotServed,
    TooManyDevices,
)

A, B = ClientId(1), ClientId(2)
DEVICE = DeviceId("0" * 32)


def device(number: int) -> DeviceId:
    return DeviceId(f"{number:032x}")


def size_after(book: DeviceBook, client: ClientId, bytes_total: int) -> int | None:
    """What the core is told of the device's size when the client opens it."""
    events = book.opened(client, DEVICE, name="GPU", bytes_total=bytes_total)
    sizes = [event.bytes_total for event in events if isinstance(event, DeviceFound)]
    return sizes[0] if sizes else None


def test_the_largest_size_counts_while_its_client_is_there() -> None:
    """A size that is too small takes nothing from others; one that is gone counts no more."""
    book = DeviceBook(clients_may_name=True)
    assert size_after(book, A, 1) == 1
    assert size_after(book, B, 100) == 100
    assert size_after(book, A, 1) is None
    (smaller,) = book.left(B)
    assert isinstance(smaller, DeviceFound) and smaller.bytes_total == 1
    (gone,) = book.closed(A, DEVICE)
    assert isinstance(gone, DeviceWithdrawn)
    assert size_after(book, B, 7) == 7


def test_what_nvml_lists_is_not_the_clients_to_name() -> None:
    """Nor to drop, nor to bring back after NVML has lost it."""
    book = DeviceBook(clients_may_name=True)
    size_after(book, A, 1)
    book.seen(DeviceFound(device=DEVICE, name="GPU", bytes_total=100))
    assert size_after(book, B, 1) is None
    assert book.left(A) == book.left(B) == []
    book.seen(DeviceLost(device=DEVICE))
    assert size_after(book, B, 1) is None


def test_only_so_many_can_be_named() -> None:
    """By one client, and by all together; what is dropped makes room."""
    book = DeviceBook(clients_may_name=True)
    for number in range(NAMED_BY_CLIENT_MAX):
        book.opened(A, device(number), name="", bytes_total=1)
    with pytest.raises(TooManyDevices):
        book.opened(A, device(NAMED_MAX), name="", bytes_total=1)
    for number in range(NAMED_BY_CLIENT_MAX, NAMED_MAX):
        book.opened(B, device(number), name="", bytes_total=1)
    with pytest.raises(TooManyDevices):
        book.opened(ClientId(3), device(NAMED_MAX), name="", bytes_total=1)
    assert len(book.left(A)) == NAMED_BY_CLIENT_MAX
    assert book.opened(ClientId(3), device(NAMED_MAX), name="", bytes_total=1)


def test_where_all_users_are_served_clients_name_nothing() -> None:
    """What NVML lists is shared there, and nothing else."""
    book = DeviceBook(clients_may_name=False)
    with pytest.raises(NotServed):
        size_after(book, A, 1)
    book.seen(DeviceFound(device=DEVICE, name="GPU", bytes_total=100))
    assert size_after(book, A, 1) is None
