/* Copies of rectangles and boxes. */
#define _GNU_SOURCE
#include <string.h>

#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"
#include "transfer/array.h"
#include "transfer/copy.h"

/* One end of a box copy, as its descriptor gives it. */
struct end {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    uint64_t pitch;
    uint64_t rows;
    uint64_t x_bytes;
    uint64_t y;
    uint64_t z;
};

/* Where an end's first byte is, and how its rows and layers follow each other. */
struct place {
    uint64_t address;
    uint64_t pitch;
    uint64_t slice;
    bool on_device;
};

static CUresult find_base(const struct end *end, struct place *place, uint64_t *rows) {
    struct range found;
    place->on_device = end->type != CU_MEMORYTYPE_HOST;
    switch (end->type) {
        case CU_MEMORYTYPE_HOST:
            place->address = (uint64_t)(uintptr_t)end->host;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_ARRAY:
            return array_place(end->array, &place->address, &place->pitch, rows)
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_HANDLE;
        case CU_MEMORYTYPE_UNIFIED:
            place->on_device = memory_find_any(end->device, &found) && found.kind != RANGE_HOST &&
                               found.kind != RANGE_REGISTERED;
            place->address = end->device;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_DEVICE:
            place->address = end->device;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult find_place(const struct end *end, const struct op_copy *copy, struct place *place) {
    uint64_t rows = end->rows != 0 ? end->rows : copy->height;
    place->pitch = end->pitch != 0 ? end->pitch : copy->width_bytes;
    CUresult result = find_base(end, place, &rows);
    if (result != CUDA_SUCCESS) return result;
    if (place->pitch < end->x_bytes + copy->width_bytes) return CUDA_ERROR_INVALID_VALUE;
    place->slice = rows * place->pitch;
    place->address += end->x_bytes + end->y * place->pitch + end->z * place->slice;
    uint64_t bytes =
        (copy->depth - 1) * place->slice + (copy->height - 1) * place->pitch + copy->width_bytes;
    if (place->on_device && !memory_copyable(place->address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
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
    struct end ends[2] = {
        {shape->dstMemoryType, shape->dstHost, shape->dstDevice, shape->dstArray, shape->dstPitch,
         shape->dstHeight, shape->dstXInBytes, shape->dstY, shape->dstZ},
        {shape->srcMemoryType, shape->srcHost, shape->srcDevice, shape->srcArray, shape->srcPitch,
         shape->srcHeight, shape->srcXInBytes, shape->srcY, shape->srcZ}};
    struct place to;
    struct place from;
    CUresult result = find_place(&ends[0], copy, &to);
    if (result == CUDA_SUCCESS) result = find_place(&ends[1], copy, &from);
    if (result != CUDA_SUCCESS) return result;
    copy->destination = to.address;
    copy->destination_pitch = to.pitch;
    copy->destination_slice = to.slice;
    copy->destination_on_device = to.on_device;
    copy->source = from.address;
    copy->source_pitch = from.pitch;
    copy->source_slice = from.slice;
    copy->source_on_device = from.on_device;
    return CUDA_SUCCESS;
}

/* Without contexts of their own, the ends go by that of the stream. */
static CUresult copy_between(const CUDA_MEMCPY3D *shape, const struct context *to,
                             const struct context *from, bool synchronous, CUstream handle) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct op op;
    result = copy_fill_3d(&op, shape);
    if (result != CUDA_SUCCESS) return result;
    if (!copy_reaches(&op, to != NULL ? to : stream->context,
                      from != NULL ? from : stream->context))
        return CUDA_ERROR_INVALID_VALUE;
    if (!synchronous) return copy_submit_async(stream, &op);
    result = capture_forbid_synchronous_copy(stream);
    return result != CUDA_SUCCESS ? result : submit_and_wait(stream, &op);
}

static CUresult copy_box(const CUDA_MEMCPY3D *shape, bool synchronous, CUstream handle) {
    return copy_between(shape, NULL, NULL, synchronous, handle);
}

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *flat) {
    return (CUDA_MEMCPY3D){.srcXInBytes = flat->srcXInBytes,
                           .srcY = flat->srcY,
                           .srcMemoryType = flat->srcMemoryType,
                           .srcHost = flat->srcHost,
                           .srcDevice = flat->srcDevice,
                           .srcArray = flat->srcArray,
                           .srcPitch = flat->srcPitch,
                           .dstXInBytes = flat->dstXInBytes,
                           .dstY = flat->dstY,
                           .dstMemoryType = flat->dstMemoryType,
                           .dstHost = flat->dstHost,
                           .dstDevice = flat->dstDevice,
                           .dstArray = flat->dstArray,
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

/* The two descriptors agree up to the contexts. */
static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *peer) {
    return (CUDA_MEMCPY3D){.srcXInBytes = peer->srcXInBytes,
                           .srcY = peer->srcY,
                           .srcZ = peer->srcZ,
                           .srcMemoryType = peer->srcMemoryType,
                           .srcHost = peer->srcHost,
                           .srcDevice = peer->srcDevice,
                           .srcArray = peer->srcArray,
                           .srcPitch = peer->srcPitch,
                           .srcHeight = peer->srcHeight,
                           .dstXInBytes = peer->dstXInBytes,
                           .dstY = peer->dstY,
                           .dstZ = peer->dstZ,
                           .dstMemoryType = peer->dstMemoryType,
                           .dstHost = peer->dstHost,
                           .dstDevice = peer->dstDevice,
                           .dstArray = peer->dstArray,
                           .dstPitch = peer->dstPitch,
                           .dstHeight = peer->dstHeight,
                           .WidthInBytes = peer->WidthInBytes,
                           .Height = peer->Height,
                           .Depth = peer->Depth};
}

static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *peer, bool synchronous, CUstream handle) {
    if (peer == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct context *to = context_check(peer->dstContext);
    struct context *from = context_check(peer->srcContext);
    if (to == NULL || from == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    CUDA_MEMCPY3D shape = from_peer(peer);
    return copy_between(&shape, to, from, synchronous, handle);
}

CUresult sim_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy) {
    return copy_peer(pCopy, true, NULL);
}

CUresult sim_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream) {
    return copy_peer(pCopy, false, hStream);
}
