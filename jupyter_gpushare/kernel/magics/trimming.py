"""What caches of frameworks keep unused leaves the GPU because the user has asked for it.

The Jupyter server asks with a silent request, which the kernel comes to after the cell that runs.
Giving back may synchronise, so it needs the turn: it is asked for as a cell asks for it, and never
is anything given back without.
"""

import ctypes
import time
from typing import Any

from .caches import CACHES
from .hook import Hook, hook_of
from .words import Unable

_DRIVER = "libcuda.so.1"
"""The frameworks have loaded it, and what is looked up in it passes the hook."""
_CANCELLED = 800
"""CUDA_ERROR_NOT_PERMITTED: the wait for the turn was cancelled."""
_TRIES = 3
_TOLD_S = 1.0
"""What the hook says of its turn may be a moment old."""
_LOOK_AGAIN_S = 0.005
_JSON = "application/json"


class Outcome:
    """As the server reads it: `bytes` that were given back, or a `message` why none were."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return {_JSON: self.told, "text/plain": str(self.told)}


def trim_now(reporter: Any, notice: str) -> Outcome:
    """`reporter` tells the hook of cells. An interrupt passes through, as in a cell."""
    try:
        hook = hook_of(notice)
        if reporter is None:
            raise Unable("This kernel does not tell where its cells end. Restart it.")
        mark = object()
        try:
            reporter.turn_begins(mark)
            return Outcome({"bytes": _trimmed(hook, lambda: reporter.is_alone(mark))})
        finally:
            reporter.turn_ends(mark)
    except Unable as problem:
        return Outcome({"message": str(problem)})
    except Exception as error:  # noqa: BLE001 - the panel shows a sentence, not our traceback
        told = f"The framework's cache gave an error: {error!r}. Restart the kernel to free it."
        return Outcome({"message": told})


def _trimmed(hook: Hook, is_alone: Any) -> int:
    """How many bytes were given back."""
    kernel = hook.describe()
    ordinals = [memory["device"] for memory in kernel["memory"]]
    keeps = [ordinal for ordinal in ordinals if CACHES.unused_bytes([ordinal])]
    if not keeps:
        return 0
    if not kernel["connected"]:
        raise Unable("No scheduler is connected. Try again when this kernel has found one.")
    if not is_alone():
        raise Unable("Other code of this kernel uses the GPU. Try again when it has ended.")
    if CACHES.is_capturing():
        raise Unable("A CUDA graph is being captured. Try again when that has ended.")
    _take_turn(hook, keeps[0])
    return int(CACHES.give_back(ordinals))


def _take_turn(hook: Hook, ordinal: int) -> None:
    """A call that does nothing on the device waits at the gate, as any call of a cell does."""
    for _ in range(_TRIES):
        if _gated_call(ordinal) == _CANCELLED:
            raise Unable("The wait for the GPU was interrupted. Ask again.")
        until_s = time.monotonic() + _TOLD_S
        while time.monotonic() < until_s:
            if hook.describe()["phase"] == "held":
                return
            time.sleep(_LOOK_AGAIN_S)
    raise Unable("The GPU went to others at this moment. Ask again.")


def _gated_call(ordinal: int) -> int:
    """Fills no bytes. The answer is the driver's or the gate's; only the latter counts.

    In the framework's own context: this thread may have none. Python goes on meanwhile."""
    driver = ctypes.CDLL(_DRIVER)
    context = ctypes.c_void_p()
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
        return 0
    try:
        driver.cuCtxPushCurrent_v2(context)
        try:
            nothing = ctypes.c_uint64(0), ctypes.c_ubyte(0), ctypes.c_size_t(0)
            return int(driver.cuMemsetD8_v2(*nothing))
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
