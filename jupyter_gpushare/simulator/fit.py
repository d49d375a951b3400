"""Whether a workload can be simulated on these devices, with these settings."""

from __future__ import annotations

from jupyter_gpushare.core.ids import DeviceId
from jupyter_gpushare.core.records import Device
from jupyter_gpushare.core.settings import MemoryMode, TurnTaking
from jupyter_gpushare.core.state import State

from .base.errors import SimulationError
from .base.workload import GIB, Workload, placed
from .base.world import World


def check(workload: Workload, *, devices: int, world: World) -> None:
    """Raises SimulationError for what cannot be simulated."""
    usable = _usable_bytes(world)
    for notebook in workload.notebooks:
        if notebook.device is not None and notebook.device >= devices:
            raise SimulationError(
                f"The notebook {notebook.name} runs on device {notebook.device}, and there "
                f"{'is 1 device' if devices == 1 else f'are {devices} devices'} (counted from 0). "
                f"Correct the trace."
            )
        if notebook.bytes_used > usable:
            raise SimulationError(
                f"The notebook {notebook.name} uses {notebook.bytes_used / GIB:.1f} GiB, and a "
                f"device has {usable / GIB:.1f} GiB for notebooks. Give its real size in the trace "
                f"(`bytes`), or that of the devices (`device_bytes`)."
            )
    _check_settings(workload, devices, world)


def _usable_bytes(world: World) -> int:
    """What the scheduler gives out of a device."""
    state = State(settings=world.settings)
    return state.usable_bytes(Device(DeviceId("0"), "", world.device_bytes))


def _check_settings(workload: Workload, devices: int, world: World) -> None:
    """Hooks are simulated that take turns and move memory."""
    if world.settings.turns is TurnTaking.OFF:
        raise SimulationError(
            "With turns off the driver shares the devices. Simulate that with --policy "
            "timeslicing, or give --set turns=on."
        )
    if world.settings.memory_mode is MemoryMode.OFF:
        used = [0] * devices
        for notebook, device in zip(
            workload.notebooks, placed(workload.notebooks, devices), strict=True
        ):
            used[device] += notebook.bytes_used
        if max(used) > world.device_bytes:
            raise SimulationError(
                f"With memory_mode off memory stays where it is, and a device would have to hold "
                f"{max(used) / GIB:.1f} GiB. Give --set memory_mode=swap."
            )
