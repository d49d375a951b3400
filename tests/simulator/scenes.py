"""Workloads of a few notebooks, and what becomes of them under a policy."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.simulator.base.hardware import Hardware
from jupyter_gpushare.simulator.base.record import Record
from jupyter_gpushare.simulator.base.workload import GIB, Cell, Notebook, Workload
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.policies import POLICIES
from jupyter_gpushare.simulator.run import MakePolicy, run


def workload(
    notebooks: Sequence[Notebook],
    cells: Sequence[tuple[int, float, float] | tuple[int, float, float, float]],
    *,
    device_gib: int = 140,
    devices: int = 1,
) -> Workload:
    """Cells are (number of the notebook, time, work), and perhaps a hold."""
    return Workload(
        title="test",
        notebooks=notebooks,
        cells=[Cell(*cell) for cell in sorted(cells, key=lambda cell: cell[1])],
        devices=devices,
        device_bytes=device_gib * GIB,
    )


def notebook(name: str, *, gib: float = 1.0, **more: object) -> Notebook:
    """Of an owner of its own, who has the same name."""
    return Notebook(name=name, owner=name, bytes_used=int(gib * GIB), **more)  # type: ignore[arg-type]


def simulated(
    policy: str | MakePolicy,
    scene: Workload,
    *,
    hardware: Hardware | None = None,
    **settings: object,
) -> Record:
    """What happens on the devices of the workload."""
    world = World(
        settings=SchedulerSettings().replace(**settings),
        hardware=hardware or Hardware(),
        device_bytes=scene.device_bytes,
    )
    make = POLICIES[policy] if isinstance(policy, str) else policy
    return run(scene, make, devices=scene.devices, world=world)


def responses(scene: Workload, record: Record, number: int) -> list[float]:
    """From when a cell of the notebook was sent to its end."""
    pairs = zip(scene.cells, record.ends_s, strict=True)
    return [end_s - cell.at_s for cell, end_s in pairs if cell.notebook == number]
