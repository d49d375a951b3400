#define _GNU_SOURCE
#include "surface/context_life.h"

#include "executor/executor.h"
#include "machine/journal.h"
#include "memory/memory.h"
#include "modules/module.h"
#include "process/process.h"
#include "streams/stream.h"

static _Atomic uint64_t next_context_id = 1;

static void journal_context(const struct context *context, uint32_t kind) {
    uint64_t now = segment_now_ns();
    struct journal_record record = {.submitted_ns = now,
                                    .started_ns = now,
                                    .ended_ns = now,
                                    .pid = process_number,
                                    .device = context->device,
                                    .kind = kind,
                                    .amount = context->footprint_bytes,
                                    .name = "context"};
    journal_append(&record);
}

static void set_limits(struct context *context) {
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

CUresult context_create(int ordinal, unsigned flags, bool primary, struct context **result) {
    CUresult started = executor_start();
    if (started != CUDA_SUCCESS) return started;
    uint32_t device = process_devices[ordinal];
    if (atomic_load(&process_segment->devices[device].lost)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    uint64_t footprint = process_segment->config.context_bytes;
    if (!segment_charge(process_segment, process_row, device, footprint))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct context *context = object_take(&context_pool);
    if (context == NULL) {
        segment_discharge(process_segment, process_row, device, footprint);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->ordinal = ordinal;
    context->device = device;
    context->primary = primary;
    context->flags = flags;
    context->id = atomic_fetch_add(&next_context_id, 1);
    context->footprint_bytes = footprint;
    set_limits(context);
    context->legacy = stream_open(context, 0, 0, true);
    if (context->legacy == NULL) {
        segment_discharge(process_segment, process_row, device, footprint);
        object_drop(&context_pool, context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    segment_lock(process_segment);
    process_row->use[device].contexts++;
    segment_unlock(process_segment);
    journal_context(context, JOURNAL_CONTEXT_CREATE);
    *result = context;
    return CUDA_SUCCESS;
}

/* The executor may retire streams that were destroyed before meanwhile: hence the references. */
static void close_streams(struct context *context) {
    for (;;) {
        pthread_mutex_lock(&contexts_lock);
        struct stream *stream = context->streams;
        if (stream != NULL) {
            context->streams = stream->next_in_context;
            object_hold(stream);
        }
        pthread_mutex_unlock(&contexts_lock);
        if (stream == NULL) return;
        stream_wait(stream, atomic_load(&stream->submitted));
        if (!context->primary) object_leave_to_kill(stream);
        stream_close(stream);
        object_drop(&stream_pool, stream);
    }
}

/* Work in flight is dropped: the sticky error makes the executor pass over it. */
void context_destroy(struct context *context) {
    stream_wait_context(context);
    context_fail(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    close_streams(context);
    memory_release_context(context);
    module_release_context(context);
    atomic_store(&context->object.live, 0);
    segment_lock(process_segment);
    process_row->use[context->device].contexts--;
    segment_unlock(process_segment);
    segment_discharge(process_segment, process_row, context->device, context->footprint_bytes);
    journal_context(context, JOURNAL_CONTEXT_DESTROY);
    object_drop(&context_pool, context);
}
