/* cuStream*, host functions and memory operations of streams. Events and capture are elsewhere. */
#define _GNU_SOURCE
#include <string.h>

#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

#define PRIORITY_GREATEST (-5)

CUresult sim_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (phStream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    int clamped = priority > 0 ? 0 : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    struct stream *stream = stream_open(context, flags, clamped, false);
    if (stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *phStream = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return sim_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult sim_cuStreamDestroy_v2(CUstream hStream) {
    struct stream *stream = object_check(&stream_pool, hStream);
    if (stream == NULL || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
    capture_abandon(stream);
    object_leave_to_kill(stream);
    stream_close(stream);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamSynchronize(CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS) result = capture_forbid_stream_query(stream);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t last = atomic_load(&stream->submitted);
    result = stream_wait(stream, last);
    stream_note_synchronised(stream, last);
    return result;
}

CUresult sim_cuStreamQuery(CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS) result = capture_forbid_stream_query(stream);
    if (result == CUDA_SUCCESS) result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS) return result;
    if (!stream_is_done(stream, atomic_load(&stream->submitted))) return CUDA_ERROR_NOT_READY;
    if (stream->legacy && stream_others_are_busy(stream)) return CUDA_ERROR_NOT_READY;
    return context_state(stream->context);
}

CUresult sim_cuStreamGetPriority(CUstream hStream, int *priority) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (streamId == NULL) return CUDA_ERROR_INVALID_VALUE;
    *streamId = stream->id;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (pctx == NULL) return CUDA_ERROR_INVALID_VALUE;
    *pctx = (CUcontext)stream->context;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    if (pGreenCtx != NULL) *pGreenCtx = NULL;
    return sim_cuStreamGetCtx(hStream, pCtx);
}

CUresult sim_cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    *device = stream->context->ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                    unsigned int flags) {
    struct stream *stream = NULL;
    struct range found;
    (void)length;
    (void)flags;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!memory_find(dptr, &found) || found.kind != RANGE_MANAGED) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (fn == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_HOST_FUNCTION, .host = {.function = fn, .argument = userData}};
    return submit(stream, &op, NULL);
}

CUresult sim_cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData,
                                 unsigned int syncMode) {
    (void)syncMode;
    return sim_cuLaunchHostFunc(hStream, fn, userData);
}

CUresult sim_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                                 unsigned int flags) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (callback == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (capture_is_under_way(stream)) return capture_forbid_stream_query(stream);
    struct op op = {.kind = OP_STREAM_CALLBACK,
                    .callback = {.function = callback, .argument = userData, .handle = hStream}};
    return submit(stream, &op, NULL);
}

static CUresult submit_value(CUstream handle, enum op_kind kind, CUdeviceptr address,
                             uint64_t value, uint32_t bytes, unsigned flags) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    unsigned known = kind == OP_WRITE_VALUE ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
                                            : CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH;
    if ((flags & ~known) != 0 || address % bytes != 0 ||
        !memory_reachable(stream->context, address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = kind,
                    .value = {.address = address, .value = value, .flags = flags, .bytes = bytes}};
    return submit(stream, &op, NULL);
}

CUresult sim_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                    unsigned int flags) {
    return submit_value(stream, OP_WAIT_VALUE, addr, value, 4, flags);
}

CUresult sim_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                    unsigned int flags) {
    return submit_value(stream, OP_WAIT_VALUE, addr, value, 8, flags);
}

CUresult sim_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                     unsigned int flags) {
    return submit_value(stream, OP_WRITE_VALUE, addr, value, 4, flags);
}

CUresult sim_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                     unsigned int flags) {
    return submit_value(stream, OP_WRITE_VALUE, addr, value, 8, flags);
}

static CUresult submit_one(CUstream stream, const CUstreamBatchMemOpParams *op) {
    switch (op->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            return submit_value(stream, OP_WAIT_VALUE, op->waitValue.address, op->waitValue.value,
                                4, op->waitValue.flags);
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            return submit_value(stream, OP_WAIT_VALUE, op->waitValue.address, op->waitValue.value64,
                                8, op->waitValue.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            return submit_value(stream, OP_WRITE_VALUE, op->writeValue.address,
                                op->writeValue.value, 4, op->writeValue.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            return submit_value(stream, OP_WRITE_VALUE, op->writeValue.address,
                                op->writeValue.value64, 8, op->writeValue.flags);
        default:
            return CUDA_SUCCESS; /* flushes and barriers: everything here is in order anyway */
    }
}

CUresult sim_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                   CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    if (paramArray == NULL || count == 0 || count > 256 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        CUresult result = submit_one(stream, &paramArray[i]);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}
