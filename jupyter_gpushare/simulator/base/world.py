"""What a policy may depend on, besides the workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_gpushare.core.ids import Seconds
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.shares.entries import parse_weights, weight_of

from .hardware import Hardware
from .workload import GIB, Notebook

DEVICES_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The devices, and the scheduler's settings."""

    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    hardware: Hardware = field(default_factory=Hardware)
    device_bytes: int = 80 * GIB
    devices_per_node: int = DEVICES_PER_NODE

    @property
    def longest_quantum_s(self) -> Seconds:
        """The longest turn under our scheduler while others wait. Fairness is looked at over a
        multiple of it, under each policy over the same."""
        return self.settings.quantum_s or self.settings.quantum_max_s

    def weights(self, notebooks: Sequence[Notebook]) -> dict[str, float]:
        """What their owners are entitled to, against each other."""
        weights = parse_weights(self.settings.weights)
        return {each.owner: weight_of(weights, each.owner, each.groups) for each in notebooks}
