"""What baselines have in common that give a device to one notebook at a time."""

from __future__ import annotations

from jupyter_gpushare.core.ids import Seconds

from ..base.hardware import Hardware
from ..base.kernel import Kernel
from ..base.loop import Loop, Planned
from .pager import Pager


class Holder:
    """The device in the hands of one notebook: first its memory comes, then its cells run."""

    def __init__(self, loop: Loop, hardware: Hardware, device_bytes: int) -> None:
        self.kernel: Kernel | None = None
        self._loop = loop
        self._pager = Pager(hardware, device_bytes)
        self._coming: Planned | None = None
        self._idle_since_s: Seconds | None = None

    def take(self, kernel: Kernel) -> None:
        """The device is free, and goes to this notebook."""
        self.kernel = kernel
        self._idle_since_s = self._loop.now_s
        if kernel.runs:
            self.work()

    def work(self) -> None:
        """A cell of the holder begins, or goes on."""
        kernel = self.kernel
        assert kernel is not None
        self._note_idleness()
        kernel.loads()
        delay_s = self._pager.touch(kernel.number, kernel.notebook.bytes_used)

        def come() -> None:
            self._coming = None
            kernel.loaded()
            kernel.go()

        if delay_s:
            self._coming = self._loop.after(delay_s, come)
        else:
            come()

    def rest(self) -> None:
        """The holder's cell has ended, and it keeps the device."""
        self._idle_since_s = self._loop.now_s

    def give(self) -> Kernel:
        """The device is free again; the cell of the holder does not go on."""
        kernel = self.kernel
        assert kernel is not None
        self._note_idleness()
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
            kernel.loaded()
        kernel.pause()
        self.kernel = None
        return kernel

    def forget(self, kernel: Kernel) -> None:
        """The notebook is gone, with its memory."""
        self._pager.forget(kernel.number)

    def _note_idleness(self) -> None:
        if self._idle_since_s is not None and self.kernel is not None:
            self.kernel.held(self._idle_since_s)
        self._idle_since_s = None
