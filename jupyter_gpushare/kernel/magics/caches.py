"""The caches of frameworks: what they keep unused leaves the GPU while its memory is short.

The bootstrap asks at the end of a cell, before the hook hears of it: the turn is still held then,
and no call in here waits for one, for frees and synchronisation pass the gate. An idle kernel is
asked by its user alone, and takes the turn first (trimming.py). Bytes that have been given back are
neither parked nor brought back.
"""

import sys
from typing import Any

from .hook import Hook
from .words import size

LEAST_BYTES = 64 << 20
"""Less is not worth the calls."""
FREE_SHARE = 32
"""Memory is short where less than this part of what the kernel may have is free."""


class Caches:
    """Of this process."""

    def __init__(self, hook: Any = None) -> None:
        self.is_on = True
        self.given: Any = {}  # bytes given back so far, by framework
        self.problem = ""
        self._hook = hook
        self._left: Any = {}  # unused bytes that a framework could not give back

    def cell_ends(self) -> None:
        """The turn's last moment: nothing else of the kernel counts as a cell."""
        if not self.is_on:
            return
        ordinals: Any = None
        for find in (_torch, _cupy):
            try:
                framework = find()
                if framework is not None:
                    ordinals = self._short_devices() if ordinals is None else ordinals
                    self._give_back(framework, ordinals)
            except Exception as error:  # noqa: BLE001 - the cell has ended well without this
                self.problem = f"{type(error).__name__}: {error}"

    def story(self) -> str:
        """For `%gpushare trim`."""
        if not self.is_on:
            told = "trim is off: frameworks keep their caches on the GPU."
        else:
            told = (
                "trim is on: at the end of a cell, while GPU memory is short, PyTorch and CuPy "
                "give back what their caches keep unused."
            )
        said = [told, self.note() or "Nothing was given back so far."]
        if self.problem:
            said.append(f"The last attempt failed: {self.problem}.")
        return " ".join(said)

    def note(self) -> str:
        """What was given back so far, or nothing."""
        given = [(name, count) for name, count in sorted(self.given.items()) if count]
        if not given:
            return ""
        parts = ", ".join(f"{name} {size(count)}" for name, count in given)
        total = size(sum(count for _, count in given))
        return f"{total} of caches were given back so far ({parts})."

    def unused_bytes(self, ordinals: Any) -> int:
        """What all frameworks could give back, as far as they tell."""
        return sum(framework.unused_bytes(ordinals) for framework in _frameworks())

    def is_capturing(self) -> bool:
        """Whether a framework captures a CUDA graph here."""
        return any(framework.is_capturing() for framework in _frameworks())

    def give_back(self, ordinals: Any) -> int:
        """All that is unused, because the user has asked for it; the turn is held. How much."""
        return sum(self._empty(framework, ordinals) for framework in _frameworks())

    def _short_devices(self) -> Any:
        if self._hook is None:
            self._hook = Hook()
        return short_devices(self._hook.describe())

    def _give_back(self, framework: Any, ordinals: Any) -> None:
        if not ordinals:
            return
        name = framework.name
        unused = framework.unused_bytes(ordinals)
        left = min(self._left.get(name, 0), unused)
        if unused - left < LEAST_BYTES or framework.is_capturing():
            return
        self._empty(framework, ordinals)

    def _empty(self, framework: Any, ordinals: Any) -> int:
        """How much it gave back."""
        name, unused = framework.name, framework.unused_bytes(ordinals)
        framework.give_back(ordinals)
        self._left[name] = framework.unused_bytes(ordinals)
        given: int = max(0, unused - self._left[name])
        self.given[name] = self.given.get(name, 0) + given
        self.problem = ""
        return given


def short_devices(kernel: Any) -> Any:
    """The ordinals of the devices whose memory is short, as far as this process may know: others
    use its devices too, and the scheduler has left it next to nothing to grow into. That is so
    where anybody's memory is parked, and where the next allocation would make somebody park. None
    without the turn. Pure."""
    if kernel["phase"] != "held" or not kernel["connected"] or kernel["tenants"] < 2:
        return []
    return [
        memory["device"]
        for memory in kernel["memory"]
        if memory["budget"] is not None
        and memory["usable"] is not None
        and (memory["budget"] - memory["allocated"]) * FREE_SHARE < memory["usable"]
    ]


class _Torch:
    """PyTorch's allocator empties its cache on all devices at once."""

    name = "PyTorch"

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def unused_bytes(self, ordinals: Any) -> int:
        """Without the free parts of segments that are in use: they cannot be given back."""
        unused = 0
        for ordinal in ordinals:
            stats = self._cuda.memory_stats(ordinal)
            kept, used, parts = (
                stats.get(kind + "_bytes.all.current", 0)
                for kind in ("reserved", "allocated", "inactive_split")
            )
            unused += max(0, kept - used - parts)
        return unused

    def is_capturing(self) -> bool:
        return bool(self._cuda.is_current_stream_capturing())

    def give_back(self, _: Any) -> None:
        self._cuda.empty_cache()


class _CuPy:
    """CuPy's default pool has a part for each device. Its pinned host memory stays."""

    name = "CuPy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._pool = cupy.get_default_memory_pool()

    def unused_bytes(self, ordinals: Any) -> int:
        unused = 0
        for ordinal in ordinals:
            with self._cupy.cuda.Device(ordinal):
                unused += self._pool.free_bytes()
        return unused

    def is_capturing(self) -> bool:
        """The default stream answers with an error while a stream captures that waits for it."""
        cuda = self._cupy.cuda
        try:
            return any(
                stream.is_capturing() for stream in (cuda.get_current_stream(), cuda.Stream.null)
            )
        except Exception:  # noqa: BLE001 - CuPy's error is a class of its own
            return True

    def give_back(self, ordinals: Any) -> None:
        for ordinal in ordinals:
            with self._cupy.cuda.Device(ordinal):
                self._pool.free_all_blocks()


def _frameworks() -> Any:
    return [each for each in (_torch(), _cupy()) if each is not None]


def _torch() -> Any:
    """None where PyTorch is not loaded, or has not used the GPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return _Torch(cuda) if cuda is not None and cuda.is_initialized() else None


def _cupy() -> Any:
    """None where CuPy is not loaded, or not to its end."""
    cupy = sys.modules.get("cupy")
    return _CuPy(cupy) if hasattr(cupy, "get_default_memory_pool") else None


CACHES = Caches()
"""This kernel's."""
