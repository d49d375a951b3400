"""Plain allocations: what they are not, and what tells them apart. A hook that keeps them in mapped
memory must not be seen through."""

from __future__ import annotations

import threading

from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUpointer_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, PinnedWord, code, ok


def test_a_plain_allocation_has_no_handle(gpu: Gpu) -> None:
    """There is no mapped memory behind it that could be retained."""
    for size in (4096, 4 * MIB):
        retained = cuda.cuMemRetainAllocationHandle(gpu.allocate(size))
        assert code(retained) is R.CUDA_ERROR_INVALID_VALUE


def test_a_plain_allocation_cannot_be_unmapped(gpu: Gpu) -> None:
    """Nor can its address be given back; it stays as it is."""
    pointer = gpu.allocate(4 * MIB)
    ok(cuda.cuMemsetD32(pointer, 7, 1024))
    assert code(cuda.cuMemUnmap(pointer, 4 * MIB)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemAddressFree(pointer, 4 * MIB)) is R.CUDA_ERROR_INVALID_VALUE
    assert gpu.download(pointer, 1024).tolist() == [7] * 1024


def test_buffer_ids_are_never_used_twice(gpu: Gpu) -> None:
    """An allocation at the same address has another number; the number is the same all over it."""
    which = Attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    ids = []
    for size in (700, 700, 3 * MIB, 3 * MIB):
        pointer = ok(cuda.cuMemAlloc(size))
        ids.append(int(ok(cuda.cuPointerGetAttribute(which, int(pointer)))))
        assert int(ok(cuda.cuPointerGetAttribute(which, int(pointer) + size - 1))) == ids[-1]
        ok(cuda.cuMemFree(pointer))
    assert len(set(ids)) == len(ids)


def test_a_free_waits_for_the_work(gpu: Gpu) -> None:
    """cuMemFree returns when the work of the context is done, whatever stream it is in."""
    stream = ok(cuda.cuStreamCreate(1))
    for size in (700, 4 * MIB):
        pointer = ok(cuda.cuMemAlloc(size))
        work = PinnedWord()
        gpu.launch("poll_flag", work.device, stream=stream)
        assert code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY
        threading.Timer(0.02, setattr, (work, "value", 1)).start()
        ok(cuda.cuMemFree(pointer))
        ok(cuda.cuStreamQuery(stream))
    ok(cuda.cuStreamDestroy(stream))


def test_frees_in_any_order(gpu: Gpu) -> None:
    """Small and large allocations that are freed and made again never overlap."""
    held: dict[int, int] = {}
    for turn in range(300):
        size = (300, 5000, 70_000, MIB, 3 * MIB)[turn * 7 % 5]
        if len(held) > 20:
            pointer = sorted(held)[turn * 13 % len(held)]
            del held[pointer]
            ok(cuda.cuMemFree(pointer))
        pointer = int(ok(cuda.cuMemAlloc(size)))
        assert all(pointer + size <= p or p + s <= pointer for p, s in held.items())
        held[pointer] = size
    for pointer in held:
        ok(cuda.cuMemFree(pointer))
