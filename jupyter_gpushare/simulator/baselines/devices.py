"""A node of a baseline that looks at each device alone."""

from __future__ import annotations

from collections.abc import Callable

from ..base.kernel import Kernel, Policy


class EachDevice:
    """Hands everything to the policy of the kernel's device."""

    def __init__(self, devices: range, make: Callable[[], Policy]) -> None:
        self._policies = {device: make() for device in devices}

    def opened(self, kernel: Kernel) -> None:
        self._policies[kernel.device].opened(kernel)

    def wants(self, kernel: Kernel) -> None:
        self._policies[kernel.device].wants(kernel)

    def ended(self, kernel: Kernel) -> None:
        self._policies[kernel.device].ended(kernel)

    def closed(self, kernel: Kernel) -> None:
        self._policies[kernel.device].closed(kernel)
