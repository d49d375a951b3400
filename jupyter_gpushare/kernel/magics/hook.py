"""The hook in this process."""

import ctypes
import json
import os
from typing import Any

from .words import Unable

_NOT_SHARED = "This kernel does not share the GPU."
_SWITCHED_OFF = "GPU sharing is switched off here (GPUSHARE_DISABLE=1): %gpushare does nothing."
_SWITCHED_OFF_BY = {
    "administrator": "Your administrator has switched GPU sharing off: %gpushare does nothing, and "
    "this notebook uses the GPU like any other program.",
    "slurm": "This Slurm job has whole GPUs, which it shares with nobody: %gpushare does nothing.",
}
_HOW_TO_SHARE = "Restart it from a Jupyter server that has jupyter-gpushare."


class Hook:
    """The hook's functions in this process. None of them blocks."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None)
        self._describe = library.gpushare_describe
        self._describe.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._hold = library.gpushare_hold
        self._hold.argtypes, self._hold.restype = [ctypes.c_uint32], None
        self._release = library.gpushare_release
        self._release.argtypes, self._release.restype = [], None

    def describe(self) -> Any:
        """What the hook knows of this process."""
        needed = size = 4096
        while needed >= size:
            size = needed + 1024
            room = ctypes.create_string_buffer(size)
            needed = self._describe(room, size)
        return json.loads(room.value.decode(errors="replace"))

    def hold(self, hold_ms: int) -> None:
        self._hold(hold_ms)

    def release(self) -> None:
        self._release()


def hook_of(notice: str) -> Hook:
    """`notice` is why this kernel does not share the GPU, where it does not."""
    if notice:
        raise Unable(notice)
    if os.environ.get("GPUSHARE_DISABLE") == "1":
        by = os.environ.get("GPUSHARE_DISABLED_BY", "")
        raise Unable(_SWITCHED_OFF_BY.get(by, _SWITCHED_OFF))
    if not os.environ.get("GPUSHARE_TOKEN"):
        raise Unable(f"{_NOT_SHARED} {_HOW_TO_SHARE}")
    try:
        return Hook()
    except AttributeError:
        raise Unable(f"{_NOT_SHARED} {_HOW_TO_SHARE}") from None
