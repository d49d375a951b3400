#define _GNU_SOURCE
#include "transfer/copy.h"

#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

#define STAGED_BYTES_MAX (64u << 10)

/* Memory that only the device reaches; pinned and managed memory are host memory to a copy. */
static bool is_device_memory(uint64_t address, bool *known) {
    struct range found;
    *known = memory_find_any(address, &found);
    return *known && found.kind != RANGE_HOST && found.kind != RANGE_REGISTERED;
}

static CUresult resolve_side(enum copy_side side, uint64_t address, uint64_t bytes,
                             bool *on_device) {
    bool known = false;
    bool device = is_device_memory(address, &known);
    *on_device = side == COPY_DEVICE || (side == COPY_UNIFIED && device);
    if (bytes == 0) return CUDA_SUCCESS;
    if (address == 0) return CUDA_ERROR_INVALID_VALUE;
    if (*on_device && !memory_copyable(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult copy_fill_linear(struct op *op, uint64_t to, enum copy_side to_side, uint64_t from,
                          enum copy_side from_side, size_t bytes) {
    memset(op, 0, sizeof *op);
    op->kind = bytes == 0 ? OP_NOTHING : OP_COPY;
    op->copy.destination = to;
    op->copy.source = from;
    op->copy.width_bytes = bytes;
    op->copy.height = 1;
    op->copy.depth = 1;
    CUresult result = resolve_side(to_side, to, bytes, &op->copy.destination_on_device);
    if (result != CUDA_SUCCESS) return result;
    return resolve_side(from_side, from, bytes, &op->copy.source_on_device);
}

static bool is_pageable(uint64_t address) {
    struct range found;
    return !memory_find_any(address, &found);
}

/* Small pageable sources are staged; other pageable copies are over when the call returns. */
CUresult copy_submit_async(struct stream *stream, struct op *op) {
    if (op->kind != OP_COPY || capture_is_under_way(stream)) return submit(stream, op, NULL);
    struct op_copy *copy = &op->copy;
    if (!copy->destination_on_device && is_pageable(copy->destination))
        return submit_and_wait(stream, op);
    if (copy->source_on_device || !is_pageable(copy->source)) return submit(stream, op, NULL);
    bool linear = copy->height == 1 && copy->depth == 1;
    void *stage =
        linear && copy->width_bytes <= STAGED_BYTES_MAX ? malloc(copy->width_bytes) : NULL;
    if (stage == NULL) return submit_and_wait(stream, op);
    memcpy(stage, (const void *)(uintptr_t)copy->source, copy->width_bytes);
    copy->source = (uint64_t)(uintptr_t)stage;
    copy->source_is_staged = true;
    CUresult result = submit(stream, op, NULL);
    if (result != CUDA_SUCCESS) free(stage);
    return result;
}

static uint64_t span(const struct op_copy *copy, uint64_t pitch, uint64_t slice) {
    return (copy->depth - 1) * slice + (copy->height - 1) * pitch + copy->width_bytes;
}

bool copy_reaches(const struct op *op, const struct context *to, const struct context *from) {
    const struct op_copy *copy = &op->copy;
    if (op->kind != OP_COPY) return true;
    if (copy->destination_on_device &&
        !memory_mappings_reachable(to, copy->destination,
                                   span(copy, copy->destination_pitch, copy->destination_slice)))
        return false;
    return !copy->source_on_device ||
           memory_mappings_reachable(from, copy->source,
                                     span(copy, copy->source_pitch, copy->source_slice));
}

static CUresult submit_copy(struct stream *stream, struct op *op, bool synchronous) {
    if (!synchronous) return copy_submit_async(stream, op);
    CUresult result = capture_forbid_synchronous_copy(stream);
    if (result != CUDA_SUCCESS) return result;
    bool inside = op->copy.source_on_device && op->copy.destination_on_device;
    return inside ? submit(stream, op, NULL) : submit_and_wait(stream, op);
}

static CUresult linear(uint64_t to, enum copy_side to_side, uint64_t from, enum copy_side from_side,
                       size_t bytes, bool synchronous, CUstream handle) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct op op;
    result = copy_fill_linear(&op, to, to_side, from, from_side, bytes);
    if (result != CUDA_SUCCESS) return result;
    if (!copy_reaches(&op, stream->context, stream->context)) return CUDA_ERROR_INVALID_VALUE;
    return submit_copy(stream, &op, synchronous);
}

static CUresult between_contexts(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                 CUcontext from_context, size_t bytes, bool synchronous,
                                 CUstream handle) {
    struct stream *stream = NULL;
    struct context *to_checked = context_check(to_context);
    struct context *from_checked = context_check(from_context);
    if (to_checked == NULL || from_checked == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct op op;
    result = copy_fill_linear(&op, to, COPY_DEVICE, from, COPY_DEVICE, bytes);
    if (result != CUDA_SUCCESS) return result;
    if (!copy_reaches(&op, to_checked, from_checked)) return CUDA_ERROR_INVALID_VALUE;
    return submit_copy(stream, &op, synchronous);
}

static uint64_t host(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    return linear(dstDevice, COPY_DEVICE, host(srcHost), COPY_HOST, ByteCount, true, NULL);
}

CUresult sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return linear(host(dstHost), COPY_HOST, srcDevice, COPY_DEVICE, ByteCount, true, NULL);
}

CUresult sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return linear(dstDevice, COPY_DEVICE, srcDevice, COPY_DEVICE, ByteCount, true, NULL);
}

CUresult sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return linear(dst, COPY_UNIFIED, src, COPY_UNIFIED, ByteCount, true, NULL);
}

CUresult sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                  CUstream hStream) {
    return linear(dstDevice, COPY_DEVICE, host(srcHost), COPY_HOST, ByteCount, false, hStream);
}

CUresult sim_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream) {
    return linear(host(dstHost), COPY_HOST, srcDevice, COPY_DEVICE, ByteCount, false, hStream);
}

CUresult sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream) {
    return linear(dstDevice, COPY_DEVICE, srcDevice, COPY_DEVICE, ByteCount, false, hStream);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return linear(dst, COPY_UNIFIED, src, COPY_UNIFIED, ByteCount, false, hStream);
}

CUresult sim_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                          CUcontext srcContext, size_t ByteCount) {
    return between_contexts(dstDevice, dstContext, srcDevice, srcContext, ByteCount, true, NULL);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                               CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    return between_contexts(dstDevice, dstContext, srcDevice, srcContext, ByteCount, false,
                            hStream);
}

/* The copies of a batch keep the stream's order; any subset of attributes is accepted. */
CUresult sim_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                   size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
                                   size_t numAttrs, CUstream hStream) {
    if (dsts == NULL || srcs == NULL || sizes == NULL || count == 0 || attrs == NULL ||
        attrsIdxs == NULL || numAttrs == 0 || numAttrs > count || hStream == NULL ||
        hStream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result =
            linear(dsts[i], COPY_UNIFIED, srcs[i], COPY_UNIFIED, sizes[i], false, hStream);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                size_t *failIdx, CUstream hStream) {
    if (failIdx != NULL) *failIdx = SIZE_MAX;
    return sim_cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}
