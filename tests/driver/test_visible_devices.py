"""CUDA_VISIBLE_DEVICES decides, when a process opens CUDA, which devices it has and in what order;
and devices beside each other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, ok
from tests.support.paths import ROOT

PROGRAM = """
from cuda.bindings import driver as cuda
print(int(cuda.cuInit(0)[0]))
for ordinal in range(cuda.cuDeviceGetCount()[1] or 0):
    print(bytes(cuda.cuDeviceGetUuid(ordinal)[1].bytes).hex())
"""


def devices_seen(visible: str) -> tuple[R, list[str]]:
    """What cuInit answers in a process with this setting, and the UUIDs of its devices."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": visible},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    error, *uuids = done.stdout.split()
    return R(int(error)), uuids


def all_uuids() -> list[str]:
    count = ok(cuda.cuDeviceGetCount())
    return [bytes(ok(cuda.cuDeviceGetUuid(i)).bytes).hex() for i in range(count)]


def named(uuid: str) -> str:
    parts = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
    return "GPU-" + "-".join(parts)


@pytest.mark.promise(
    "simulated-48",
    "Several devices, each with its own UUID, memory and place in the order of "
    "`CUDA_VISIBLE_DEVICES`",
)
def test_devices_by_ordinal_and_by_uuid(gpu: Gpu) -> None:
    """A device can be named by its ordinal or by its UUID."""
    last = all_uuids()[-1]
    for visible in (str(len(all_uuids()) - 1), named(last)):
        assert devices_seen(visible) == (R.CUDA_SUCCESS, [last]), visible


@pytest.mark.parametrize("visible", ["", "-1", "99", "-1,0"])
def test_no_devices(gpu: Gpu, visible: str) -> None:
    """Without any visible device cuInit says that there is none."""
    assert devices_seen(visible) == (R.CUDA_ERROR_NO_DEVICE, [])


def test_the_list_ends_at_its_first_mistake(gpu: Gpu) -> None:
    """Entries after one that names no device do not count."""
    first = all_uuids()[0]
    assert devices_seen("0,99,0") == (R.CUDA_SUCCESS, [first])


@pytest.mark.promise("simulated-48")
def test_order_of_devices(gpu: Gpu) -> None:
    """Ordinals follow the order of the list."""
    uuids = all_uuids()
    if len(uuids) < 2:
        pytest.skip("one device alone has no order")
    assert devices_seen("1,0") == (R.CUDA_SUCCESS, [uuids[1], uuids[0]])
    assert devices_seen("1") == (R.CUDA_SUCCESS, [uuids[1]])


@pytest.mark.promise("simulated-48")
@pytest.mark.promise("simulated-4")
def test_devices_have_memory_of_their_own(gpu: Gpu) -> None:
    """An allocation on one device takes nothing from another, and copies go between them."""
    if len(all_uuids()) < 2:
        pytest.skip("needs two devices")
    source = gpu.upload([1, 2, 3])
    free, _ = ok(cuda.cuMemGetInfo())
    other = Gpu(1)
    target = other.allocate(256 * MIB)
    ok(cuda.cuMemcpyPeer(target, other.context, source, gpu.context, 12))
    assert other.download(target, 3).tolist() == [1, 2, 3]
    ok(cuda.cuCtxSetCurrent(gpu.context))
    assert ok(cuda.cuMemGetInfo())[0] == free
    other.clean_up()
    ok(cuda.cuDevicePrimaryCtxRelease(other.device))
    ok(cuda.cuCtxSetCurrent(gpu.context))
