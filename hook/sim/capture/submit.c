#define _GNU_SOURCE
#include "capture/submit.h"

#include "capture/capture.h"
#include "process/context.h"
#include "streams/stream.h"

CUresult submit(struct stream *stream, struct op *op, uint64_t *sequence) {
    if (sequence != NULL) *sequence = 0;
    if (__builtin_expect(capture_is_under_way(stream), 0)) return capture_append(stream, op);
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
