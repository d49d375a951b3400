#define _GNU_SOURCE
#include "stream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "capture.h"
#include "context.h"
#include "entry.h"
#include "event.h"
#include "executor.h"
#include "futex.h"
#include "graph.h"
#include "host_thread.h"
#include "per_thread.h"
#include "pool.h"
#include "process.h"

#define WAIT_SPINS 100

struct object_pool stream_pool = OBJECT_POOL(struct stream, 65536);

static _Atomic uint32_t next_stream_number;
static _Atomic uint64_t next_stream_id = 1;

struct stream *stream_open(struct context *context, unsigned flags, int priority, bool legacy) {
    struct stream *stream = object_take(&stream_pool);
    if (stream == NULL) return NULL;
    void *ring = mmap(NULL, STREAM_RING_OPS * sizeof(struct op), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ring == MAP_FAILED) {
        object_drop(&stream_pool, stream);
        return NULL;
    }
    stream->ring = ring;
    stream->context = context;
    stream->number = atomic_fetch_add(&next_stream_number, 1);
    stream->id = atomic_fetch_add(&next_stream_id, 1);
    stream->flags = flags;
    stream->priority = priority;
    stream->legacy = legacy;
    stream->blocking = !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0;
    pthread_mutex_init(&stream->lock, NULL);
    atomic_store(&stream->wanted, STREAM_NOBODY_WAITS);
    pthread_mutex_lock(&contexts_lock);
    stream->next_in_context = context->streams;
    context->streams = stream;
    pthread_mutex_unlock(&contexts_lock);
    object_hold(stream); /* the executor's */
    executor_add(stream);
    return stream;
}

void stream_close(struct stream *stream) {
    if (atomic_exchange(&stream->object.live, 0) == 0) return;
    atomic_store(&stream->doomed, true);
    executor_wake();
    object_drop(&stream_pool, stream);
}

void stream_forget(struct stream *stream) {
    pthread_mutex_lock(&contexts_lock);
    struct stream **link = &stream->context->streams;
    while (*link != NULL && *link != stream)
        link = &(*link)->next_in_context;
    if (*link == stream) *link = stream->next_in_context;
    pthread_mutex_unlock(&contexts_lock);
}

CUresult stream_resolve(CUstream handle, struct stream **result) {
    bool per_thread = handle == CU_STREAM_PER_THREAD;
    if (handle == NULL) per_thread = entry_default_stream_is_per_thread;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct context *context = NULL;
        CUresult state = context_current(&context);
        if (state != CUDA_SUCCESS) return state;
        *result = per_thread ? per_thread_stream(context) : context->legacy;
        return *result == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    struct stream *stream = object_check(&stream_pool, handle);
    if (stream == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (host_thread_is_self()) return CUDA_ERROR_NOT_PERMITTED;
    *result = stream;
    return context_state(stream->context);
}

bool stream_is_done(const struct stream *stream, uint64_t sequence) {
    return atomic_load_explicit(&stream->completed, memory_order_acquire) >= sequence;
}

bool stream_others_are_busy(const struct stream *legacy) {
    bool busy = false;
    pthread_mutex_lock(&contexts_lock);
    for (const struct stream *s = legacy->context->streams; s != NULL; s = s->next_in_context)
        busy |= s->blocking && !stream_is_done(s, atomic_load(&s->submitted));
    pthread_mutex_unlock(&contexts_lock);
    return busy;
}

/* A wait that is over in a microsecond or two is not worth two system calls. */
static void wait_for_sequence(struct stream *stream, uint64_t sequence) {
    for (int i = 0; i < WAIT_SPINS && !stream_is_done(stream, sequence); i++)
        cpu_relax();
    while (!stream_is_done(stream, sequence)) {
        uint32_t bell = atomic_load(&stream->bell);
        uint64_t wanted = atomic_load(&stream->wanted);
        while (sequence < wanted &&
               !atomic_compare_exchange_weak(&stream->wanted, &wanted, sequence)) {
        }
        if (atomic_load(&stream->completed) >= sequence) break;
        futex_wait(&stream->bell, bell, FUTEX_FOREVER);
    }
}

CUresult stream_wait(struct stream *stream, uint64_t sequence) {
    wait_for_sequence(stream, sequence);
    return context_state(stream->context);
}

CUresult stream_submit(struct stream *stream, struct op *op, uint64_t *sequence) {
    if (sequence != NULL) *sequence = 0;
    if (__builtin_expect(atomic_load_explicit(&stream->capture, memory_order_acquire) != NULL, 0))
        return capture_append(stream, op);
    struct context *context = stream->context;
    if (stream->legacy && atomic_load_explicit(&context->captures, memory_order_relaxed) > 0)
        return capture_forbid_implicit(context);
    op->submitted_ns = segment_now_ns();
    op->context = context;
    pthread_mutex_lock(&stream->lock);
    uint64_t position = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    if (position - atomic_load_explicit(&stream->completed, memory_order_acquire) >=
        STREAM_RING_OPS)
        wait_for_sequence(stream, position + 1 - STREAM_RING_OPS / 2); /* not woken for each */
    op->order = 0;
    if (stream->legacy || stream->blocking)
        op->order = atomic_fetch_add_explicit(&context->order, 1, memory_order_relaxed) + 1;
    if (op->kind == OP_EVENT_RECORD) {
        op->record.sequence = position + 1;
        event_note_record(op->record.event, stream, position + 1);
    }
    stream->ring[position % STREAM_RING_OPS] = *op;
    atomic_store(&stream->submitted, position + 1);
    pthread_mutex_unlock(&stream->lock);
    executor_wake();
    if (sequence != NULL) *sequence = position + 1;
    return CUDA_SUCCESS;
}

CUresult stream_run(struct stream *stream, struct op *op) {
    uint64_t sequence = 0;
    CUresult result = stream_submit(stream, op, &sequence);
    if (result != CUDA_SUCCESS || sequence == 0) return result;
    return stream_wait(stream, sequence);
}

CUresult stream_wait_context(struct context *context) {
    uint64_t last_id = 0;
    for (;;) { /* in the order of their ids, without holding the lock while waiting */
        struct stream *next = NULL;
        pthread_mutex_lock(&contexts_lock);
        for (struct stream *s = context->streams; s != NULL; s = s->next_in_context) {
            if (s->id > last_id && (next == NULL || s->id < next->id)) next = s;
        }
        if (next != NULL) object_hold(next);
        pthread_mutex_unlock(&contexts_lock);
        if (next == NULL) return context_state(context);
        last_id = next->id;
        wait_for_sequence(next, atomic_load(&next->submitted));
        object_drop(&stream_pool, next);
    }
}

void op_hold(const struct op *op) {
    if (op->kind == OP_EVENT_RECORD) object_hold(op->record.event);
    if (op->kind == OP_GRAPH_ALLOC) pool_memory_hold(op->memory);
}

void op_release(const struct op *op) {
    switch (op->kind) {
        case OP_COPY:
            if (op->copy.source_is_staged) free((void *)(uintptr_t)op->copy.source);
            break;
        case OP_EVENT_RECORD:
            object_drop(&event_pool, op->record.event);
            break;
        case OP_STREAM_WAIT:
            object_drop(&stream_pool, op->wait.stream);
            break;
        case OP_GRAPH_ALLOC:
            pool_memory_drop(op->memory);
            break;
        case OP_GRAPH:
            graph_plan_drop(op->plan);
            break;
        default:
            break;
    }
}
