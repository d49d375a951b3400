#define _GNU_SOURCE
#include "capture/submit.h"

#include "capture/capture.h"
#include "memory/memory.h"
#include "process/context.h"
#include "streams/stream.h"

/* Work that is not captured has no memory of a graph before its first launch. */
static bool comes_too_early(const struct op *op) {
    if (op->kind == OP_MEMSET) return memory_awaits_launch(op->memset.destination);
    if (op->kind != OP_COPY) return false;
    return (op->copy.destination_on_device && memory_awaits_launch(op->copy.destination)) ||
           (op->copy.source_on_device && memory_awaits_launch(op->copy.source));
}

CUresult submit(struct stream *stream, struct op *op, uint64_t *sequence) {
    if (sequence != NULL) *sequence = 0;
    if (__builtin_expect(capture_is_under_way(stream), 0)) return capture_append(stream, op);
    if (comes_too_early(op)) return CUDA_ERROR_INVALID_VALUE;
    struct context *context = stream->context;
    if (stream->legacy && atomic_load_explicit(&context->captures, memory_order_relaxed) > 0)
        return capture_forbid_implicit(context);
    uint64_t queued = stream_queue(stream, op);
    if (sequence != NULL) *sequence = queued;
    return CUDA_SUCCESS;
}

CUresult submit_and_wait(struct stream *stream, struct op *op) {
    uint64_t sequence = 0;
    CUresult result = submit(stream, op, &sequence);
    if (result != CUDA_SUCCESS || sequence == 0) return result;
    return stream_wait(stream, sequence);
}
