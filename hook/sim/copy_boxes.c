/* Copies of rectangles and boxes, and memsets. Arrays are not simulated. */
#define _GNU_SOURCE
#include <string.h>

#include "capture.h"
#include "context.h"
#include "copy.h"
#include "memory.h"
#include "sim_api.h"
#include "stream.h"

static CUresult side_of(CUmemorytype type, const void *host_pointer, CUdeviceptr device_pointer,
                        uint64_t *address, bool *on_device) {
    struct range found;
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            *address = (uint64_t)(uintptr_t)host_pointer;
            *on_device = false;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_DEVICE:
            *address = device_pointer;
            *on_device = true;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_UNIFIED:
            *address = device_pointer;
            *on_device = memory_find(device_pointer, &found) && found.kind != RANGE_HOST &&
                         found.kind != RANGE_REGISTERED;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static bool box_is_copyable(uint64_t address, uint64_t pitch, uint64_t slice,
                            const struct op_copy *copy) {
    uint64_t bytes = (copy->depth - 1) * slice + (copy->height - 1) * pitch + copy->width_bytes;
    return memory_copyable(address, bytes);
}

CUresult copy_fill_3d(struct op *op, const CUDA_MEMCPY3D *shape) {
    memset(op, 0, sizeof *op);
    struct op_copy *copy = &op->copy;
    copy->width_bytes = shape->WidthInBytes;
    copy->height = shape->Height;
    copy->depth = shape->Depth;
    bool empty = shape->WidthInBytes == 0 || shape->Height == 0 || shape->Depth == 0;
    op->kind = empty ? OP_NOTHING : OP_COPY;
    if (empty) return CUDA_SUCCESS;
    CUresult result = side_of(shape->dstMemoryType, shape->dstHost, shape->dstDevice,
                              &copy->destination, &copy->destination_on_device);
    if (result == CUDA_SUCCESS)
        result = side_of(shape->srcMemoryType, shape->srcHost, shape->srcDevice, &copy->source,
                         &copy->source_on_device);
    if (result != CUDA_SUCCESS) return result;
    copy->destination_pitch = shape->dstPitch != 0 ? shape->dstPitch : shape->WidthInBytes;
    copy->source_pitch = shape->srcPitch != 0 ? shape->srcPitch : shape->WidthInBytes;
    if (copy->destination_pitch < shape->dstXInBytes + shape->WidthInBytes ||
        copy->source_pitch < shape->srcXInBytes + shape->WidthInBytes)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t to_rows = shape->dstHeight != 0 ? shape->dstHeight : shape->Height;
    uint64_t from_rows = shape->srcHeight != 0 ? shape->srcHeight : shape->Height;
    copy->destination_slice = to_rows * copy->destination_pitch;
    copy->source_slice = from_rows * copy->source_pitch;
    copy->destination += shape->dstXInBytes + shape->dstY * copy->destination_pitch +
                         shape->dstZ * copy->destination_slice;
    copy->source +=
        shape->srcXInBytes + shape->srcY * copy->source_pitch + shape->srcZ * copy->source_slice;
    if (copy->destination_on_device &&
        !box_is_copyable(copy->destination, copy->destination_pitch, copy->destination_slice, copy))
        return CUDA_ERROR_INVALID_VALUE;
    if (copy->source_on_device &&
        !box_is_copyable(copy->source, copy->source_pitch, copy->source_slice, copy))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D *shape, bool synchronous, CUstream handle) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct op op;
    result = copy_fill_3d(&op, shape);
    if (result != CUDA_SUCCESS) return result;
    if (!synchronous) return copy_submit_async(stream, &op);
    result = capture_forbid_synchronous_copy(stream);
    return result != CUDA_SUCCESS ? result : stream_run(stream, &op);
}

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *flat) {
    return (CUDA_MEMCPY3D){.srcXInBytes = flat->srcXInBytes,
                           .srcY = flat->srcY,
                           .srcMemoryType = flat->srcMemoryType,
                           .srcHost = flat->srcHost,
                           .srcDevice = flat->srcDevice,
                           .srcPitch = flat->srcPitch,
                           .dstXInBytes = flat->dstXInBytes,
                           .dstY = flat->dstY,
                           .dstMemoryType = flat->dstMemoryType,
                           .dstHost = flat->dstHost,
                           .dstDevice = flat->dstDevice,
                           .dstPitch = flat->dstPitch,
                           .WidthInBytes = flat->WidthInBytes,
                           .Height = flat->Height,
                           .Depth = 1};
}

CUresult sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) {
    if (pCopy == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape = from_2d(pCopy);
    return copy_box(&shape, true, NULL);
}

CUresult sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) {
    return sim_cuMemcpy2D_v2(pCopy);
}

CUresult sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    if (pCopy == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape = from_2d(pCopy);
    return copy_box(&shape, false, hStream);
}

CUresult sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy) {
    return pCopy == NULL ? CUDA_ERROR_INVALID_VALUE : copy_box(pCopy, true, NULL);
}

CUresult sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    return pCopy == NULL ? CUDA_ERROR_INVALID_VALUE : copy_box(pCopy, false, hStream);
}

/* The two descriptors agree up to the contexts, which unified addressing makes superfluous. */
static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *peer) {
    return (CUDA_MEMCPY3D){.srcXInBytes = peer->srcXInBytes,
                           .srcY = peer->srcY,
                           .srcZ = peer->srcZ,
                           .srcMemoryType = peer->srcMemoryType,
                           .srcHost = peer->srcHost,
                           .srcDevice = peer->srcDevice,
                           .srcPitch = peer->srcPitch,
                           .srcHeight = peer->srcHeight,
                           .dstXInBytes = peer->dstXInBytes,
                           .dstY = peer->dstY,
                           .dstZ = peer->dstZ,
                           .dstMemoryType = peer->dstMemoryType,
                           .dstHost = peer->dstHost,
                           .dstDevice = peer->dstDevice,
                           .dstPitch = peer->dstPitch,
                           .dstHeight = peer->dstHeight,
                           .WidthInBytes = peer->WidthInBytes,
                           .Height = peer->Height,
                           .Depth = peer->Depth};
}

CUresult sim_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy) {
    if (pCopy == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape = from_peer(pCopy);
    return copy_box(&shape, true, NULL);
}

CUresult sim_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream) {
    if (pCopy == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D shape = from_peer(pCopy);
    return copy_box(&shape, false, hStream);
}

/* Memsets of device memory do not wait, also where they have no stream argument. */
static CUresult memset_box(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element_bytes,
                           size_t width, size_t height, bool synchronous, CUstream handle) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && synchronous) result = capture_forbid_synchronous_copy(stream);
    if (result != CUDA_SUCCESS) return result;
    if (width == 0 || height == 0) return CUDA_SUCCESS;
    if (to % element_bytes != 0 || (height > 1 && pitch < width * element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_copyable(to, (height - 1) * pitch + width * element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_MEMSET,
                    .memset = {.destination = to,
                               .pitch = pitch,
                               .width = width,
                               .height = height,
                               .value = value,
                               .element_bytes = element_bytes}};
    return stream_submit(stream, &op, NULL);
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return memset_box(dstDevice, 0, uc, 1, N, 1, true, NULL);
}

CUresult sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return memset_box(dstDevice, 0, us, 2, N, 1, true, NULL);
}

CUresult sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return memset_box(dstDevice, 0, ui, 4, N, 1, true, NULL);
}

CUresult sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                             size_t Height) {
    return memset_box(dstDevice, dstPitch, uc, 1, Width, Height, true, NULL);
}

CUresult sim_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                              size_t Width, size_t Height) {
    return memset_box(dstDevice, dstPitch, us, 2, Width, Height, true, NULL);
}

CUresult sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                              size_t Height) {
    return memset_box(dstDevice, dstPitch, ui, 4, Width, Height, true, NULL);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return memset_box(dstDevice, 0, uc, 1, N, 1, false, hStream);
}

CUresult sim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                              CUstream hStream) {
    return memset_box(dstDevice, 0, us, 2, N, 1, false, hStream);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return memset_box(dstDevice, 0, ui, 4, N, 1, false, hStream);
}

CUresult sim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                               size_t Width, size_t Height, CUstream hStream) {
    return memset_box(dstDevice, dstPitch, uc, 1, Width, Height, false, hStream);
}

CUresult sim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                size_t Width, size_t Height, CUstream hStream) {
    return memset_box(dstDevice, dstPitch, us, 2, Width, Height, false, hStream);
}

CUresult sim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                size_t Width, size_t Height, CUstream hStream) {
    return memset_box(dstDevice, dstPitch, ui, 4, Width, Height, false, hStream);
}
