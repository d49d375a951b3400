"""What is wrong at a node, as its scheduler sees it: in sentences that name devices and nobody's
notebook, for other users may read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpushare.core.snapshot import DeviceSnapshot, Snapshot


def problems_of(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(each for device in snapshot.devices for each in _of_device(device))


def _of_device(device: DeviceSnapshot) -> Iterator[str]:
    called = f"{device.name} ({device.id[:8]})"
    if device.lost:
        yield (
            f"{called} does not answer any more. Look at `nvidia-smi` and at the kernel's log on "
            f"this node."
        )
    if any(holder.frozen for holder in device.holders):
        yield (
            f"The notebook that has {called} was stopped from outside, so it cannot give the turn "
            f"back. Let it go on, or end it."
        )
    elif any(holder.overdue for holder in device.holders):
        yield (
            f"The notebook that has {called} was asked for its turn and still works there. "
            f"Interrupt or restart it."
        )
