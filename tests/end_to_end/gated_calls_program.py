"""A program that makes each gated call that the simulated GPU performs, as told: a line with a name
does that call, and the answer is the name again. Run under the hook; imports nothing of this
repository."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

LENGTH = 4096
PITCH = 256


def checked(answer: tuple[Any, ...]) -> Any:
    error, *values = answer
    if error == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED:
        return None  # the simulated device does not have it, but the call has got there
    if error != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(error.name)
    return values[0] if len(values) == 1 else values


checked(cu.cuInit(0))
hook = ctypes.CDLL(None)
device = checked(cu.cuDeviceGet(0))
context = checked(cu.cuDevicePrimaryCtxRetain(device))
checked(cu.cuCtxSetCurrent(context))
module = checked(cu.cuModuleLoadData(Path(sys.argv[1]).read_bytes() + b"\0"))
spin = checked(cu.cuModuleGetFunction(module, b"spin"))
stream = checked(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
host = int(checked(cu.cuMemHostAlloc(LENGTH, 0)))
more_host = host + LENGTH // 2
word = int(checked(cu.cuMemHostGetDevicePointer(host, 0)))
NANOSECONDS = ((1000,), (ctypes.c_uint64,))


def captured_graph() -> Any:
    """A graph of one launch; making it needs no turn."""
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(cu.cuStreamBeginCapture(stream, mode))
    checked(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, NANOSECONDS, 0))
    return checked(cu.cuGraphInstantiate(checked(cu.cuStreamEndCapture(stream)), 0))


graph = captured_graph()
kept: dict[str, Any] = {}


def memory() -> Any:
    return kept["cuMemAlloc"]


def array() -> Any:
    return kept["cuArrayCreate"]


def launch_ex() -> None:
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = stream
    checked(cu.cuLaunchKernelEx(config, spin, NANOSECONDS, 0))


HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)


def host_function() -> None:
    function = cu.CUhostFn(ctypes.cast(HOST_FUNCTION, ctypes.c_void_p).value)
    checked(cu.cuLaunchHostFunc(stream, function, 0))


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *_: None)


def callback() -> None:
    function = cu.CUstreamCallback(ctypes.cast(CALLBACK, ctypes.c_void_p).value)
    checked(cu.cuStreamAddCallback(stream, function, 0, 0))


def rectangle() -> Any:
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = memory(), int(memory()) + 2048
    copy.srcPitch = copy.dstPitch = PITCH
    copy.WidthInBytes, copy.Height = 64, 4
    return copy


def box() -> Any:
    copy = cu.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = memory(), int(memory()) + 2048
    copy.srcPitch = copy.dstPitch = PITCH
    copy.srcHeight = copy.dstHeight = 2
    copy.WidthInBytes, copy.Height, copy.Depth = 64, 2, 2
    return copy


def peer_box() -> Any:
    copy = cu.CUDA_MEMCPY3D_PEER()
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = memory(), int(memory()) + 2048
    copy.srcContext = copy.dstContext = context
    copy.srcPitch = copy.dstPitch = PITCH
    copy.srcHeight = copy.dstHeight = 2
    copy.WidthInBytes, copy.Height, copy.Depth = 64, 2, 2
    return copy


def array_shape() -> Any:
    shape = cu.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 64, 4, 1
    shape.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    return shape


def layered_shape() -> Any:
    shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.Depth, shape.NumChannels = 64, 4, 2, 1
    shape.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    return shape


def chunk() -> Any:
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    return properties


def location() -> Any:
    place = cu.CUmemLocation()
    place.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = 0
    return place


def write_word() -> Any:
    parameters = cu.CUstreamBatchMemOpParams()
    parameters.operation = cu.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_32
    parameters.writeValue.operation = parameters.operation
    parameters.writeValue.address = word
    parameters.writeValue.value = 1
    return parameters


def batch() -> None:
    attributes = cu.CUmemcpyAttributes()
    attributes.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    target, source = cu.CUdeviceptr(int(memory())), cu.CUdeviceptr(int(memory()) + 64)
    checked(cu.cuMemcpyBatchAsync([target], [source], [64], 1, [attributes], [0], 1, stream))


def prefetch_batch() -> None:
    managed = cu.CUdeviceptr(int(kept["cuMemAllocManaged"]))
    checked(cu.cuMemPrefetchBatchAsync([managed], [LENGTH], 1, [location()], [0], 1, 0, stream))


def from_pool() -> Any:
    pool = checked(cu.cuDeviceGetDefaultMemPool(device))
    return checked(cu.cuMemAllocFromPoolAsync(LENGTH, pool, stream))


GLOBAL = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
CALLS: dict[str, Callable[[], Any]] = {
    "cuMemAlloc": lambda: checked(cu.cuMemAlloc(LENGTH)),
    "cuMemAllocPitch": lambda: checked(cu.cuMemAllocPitch(64, 4, 4)),
    "cuMemAllocManaged": lambda: checked(cu.cuMemAllocManaged(LENGTH, GLOBAL)),
    "cuMemAllocAsync": lambda: checked(cu.cuMemAllocAsync(LENGTH, stream)),
    "cuMemAllocFromPoolAsync": from_pool,
    "cuMemCreate": lambda: checked(cu.cuMemCreate(2 << 20, chunk(), 0)),
    "cuArrayCreate": lambda: checked(cu.cuArrayCreate(array_shape())),
    "cuArray3DCreate": lambda: checked(cu.cuArray3DCreate(layered_shape())),
    "cuLaunchKernel": lambda: checked(
        cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, NANOSECONDS, 0)
    ),
    "cuLaunchKernelEx": launch_ex,
    "cuLaunchCooperativeKernel": lambda: checked(
        cu.cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, NANOSECONDS)
    ),
    "cuLaunchHostFunc": host_function,
    "cuStreamAddCallback": callback,
    "cuGraphUpload": lambda: checked(cu.cuGraphUpload(graph, stream)),
    "cuGraphLaunch": lambda: checked(cu.cuGraphLaunch(graph, stream)),
    "cuMemcpy": lambda: checked(cu.cuMemcpy(memory(), int(memory()) + 64, 64)),
    "cuMemcpyAsync": lambda: checked(cu.cuMemcpyAsync(memory(), host, 64, stream)),
    "cuMemcpyHtoD": lambda: checked(cu.cuMemcpyHtoD(memory(), host, 64)),
    "cuMemcpyHtoDAsync": lambda: checked(cu.cuMemcpyHtoDAsync(memory(), host, 64, stream)),
    "cuMemcpyDtoH": lambda: checked(cu.cuMemcpyDtoH(more_host, memory(), 64)),
    "cuMemcpyDtoHAsync": lambda: checked(cu.cuMemcpyDtoHAsync(more_host, memory(), 64, stream)),
    "cuMemcpyDtoD": lambda: checked(cu.cuMemcpyDtoD(memory(), int(memory()) + 64, 64)),
    "cuMemcpyDtoDAsync": lambda: checked(
        cu.cuMemcpyDtoDAsync(memory(), int(memory()) + 64, 64, stream)
    ),
    "cuMemcpyHtoA": lambda: checked(cu.cuMemcpyHtoA(array(), 0, host, 64)),
    "cuMemcpy2D": lambda: checked(cu.cuMemcpy2D(rectangle())),
    "cuMemcpy2DUnaligned": lambda: checked(cu.cuMemcpy2DUnaligned(rectangle())),
    "cuMemcpy2DAsync": lambda: checked(cu.cuMemcpy2DAsync(rectangle(), stream)),
    "cuMemcpy3D": lambda: checked(cu.cuMemcpy3D(box())),
    "cuMemcpy3DAsync": lambda: checked(cu.cuMemcpy3DAsync(box(), stream)),
    "cuMemcpy3DPeer": lambda: checked(cu.cuMemcpy3DPeer(peer_box())),
    "cuMemcpy3DPeerAsync": lambda: checked(cu.cuMemcpy3DPeerAsync(peer_box(), stream)),
    "cuMemcpyPeer": lambda: checked(
        cu.cuMemcpyPeer(memory(), context, int(memory()) + 64, context, 64)
    ),
    "cuMemcpyPeerAsync": lambda: checked(
        cu.cuMemcpyPeerAsync(memory(), context, int(memory()) + 64, context, 64, stream)
    ),
    "cuMemcpyBatchAsync": batch,
    "cuMemsetD8": lambda: checked(cu.cuMemsetD8(memory(), 1, 64)),
    "cuMemsetD16": lambda: checked(cu.cuMemsetD16(memory(), 1, 32)),
    "cuMemsetD32": lambda: checked(cu.cuMemsetD32(memory(), 1, 16)),
    "cuMemsetD8Async": lambda: checked(cu.cuMemsetD8Async(memory(), 1, 64, stream)),
    "cuMemsetD16Async": lambda: checked(cu.cuMemsetD16Async(memory(), 1, 32, stream)),
    "cuMemsetD32Async": lambda: checked(cu.cuMemsetD32Async(memory(), 1, 16, stream)),
    "cuMemsetD2D8": lambda: checked(cu.cuMemsetD2D8(memory(), PITCH, 1, 16, 4)),
    "cuMemsetD2D16": lambda: checked(cu.cuMemsetD2D16(memory(), PITCH, 1, 16, 4)),
    "cuMemsetD2D32": lambda: checked(cu.cuMemsetD2D32(memory(), PITCH, 1, 16, 4)),
    "cuMemsetD2D8Async": lambda: checked(cu.cuMemsetD2D8Async(memory(), PITCH, 1, 16, 4, stream)),
    "cuMemsetD2D16Async": lambda: checked(cu.cuMemsetD2D16Async(memory(), PITCH, 1, 16, 4, stream)),
    "cuMemsetD2D32Async": lambda: checked(cu.cuMemsetD2D32Async(memory(), PITCH, 1, 16, 4, stream)),
    "cuMemPrefetchAsync": lambda: checked(
        cu.cuMemPrefetchAsync(kept["cuMemAllocManaged"], LENGTH, location(), 0, stream)
    ),
    "cuMemPrefetchBatchAsync": prefetch_batch,
    "cuStreamAttachMemAsync": lambda: checked(
        cu.cuStreamAttachMemAsync(stream, kept["cuMemAllocManaged"], LENGTH, GLOBAL)
    ),
    "cuStreamWriteValue32": lambda: checked(cu.cuStreamWriteValue32(stream, word, 1, 0)),
    "cuStreamWriteValue64": lambda: checked(cu.cuStreamWriteValue64(stream, word, 1, 0)),
    "cuStreamWaitValue32": lambda: checked(cu.cuStreamWaitValue32(stream, word, 0, 0)),
    "cuStreamWaitValue64": lambda: checked(cu.cuStreamWaitValue64(stream, word, 0, 0)),
    "cuStreamBatchMemOp": lambda: checked(cu.cuStreamBatchMemOp(stream, 1, [write_word()], 0)),
}


def main() -> None:
    print("calls", *CALLS, flush=True)
    for line in sys.stdin:
        name = line.strip()
        hook.gpushare_cell_began()
        kept[name] = CALLS[name]()
        print("made", name, flush=True)
        hook.gpushare_cell_ended()


main()
