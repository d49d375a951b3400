#define _GNU_SOURCE
#include "streams/stream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine/futex.h"
#include "process/context.h"
#include "process/process.h"
#include "streams/event.h"

#define WAIT_SPINS 100

struct object_pool stream_pool = OBJECT_POOL(struct stream, 65536);

static _Atomic uint32_t next_stream_number;
static _Atomic uint64_t next_stream_id = 1;

static struct stream *_Atomic incoming; /* streams that join the executor's, newest first */

static void join_executor(struct stream *stream) {
    struct stream *first = atomic_load(&incoming);
    do {
        stream->execution.next = first;
    } while (!atomic_compare_exchange_weak(&incoming, &first, stream));
}

struct stream *stream_take_incoming(void) {
    if (!stream_any_incoming()) return NULL;
    return atomic_exchange(&incoming, NULL);
}

bool stream_any_incoming(void) {
    return atomic_load(&incoming) != NULL;
}

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
    join_executor(stream);
    return stream;
}

void stream_close(struct stream *stream) {
    if (atomic_exchange(&stream->object.live, 0) == 0) return;
    atomic_store(&stream->doomed, true);
    process_wake();
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

static bool is_busy(const struct context *context) {
    for (const struct stream *s = context->streams; s != NULL; s = s->next_in_context) {
        if (!stream_is_done(s, atomic_load(&s->submitted))) return true;
    }
    return false;
}

bool stream_any_is_busy(void) {
    bool busy = false;
    pthread_mutex_lock(&contexts_lock);
    const size_t count = object_count(&context_pool);
    for (size_t i = 0; i < count && !busy; i++) {
        const struct context *context = object_at(&context_pool, i);
        busy = atomic_load(&context->object.live) && is_busy(context);
    }
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

uint64_t stream_queue(struct stream *stream, struct op *op) {
    struct context *context = stream->context;
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
    if (op->kind == OP_STREAM_WAIT)
        stream->waits[stream->waits_noted++ % STREAM_WAITS_KEPT] =
            (struct pool_order){op->wait.stream->id, op->wait.sequence};
    stream->ring[position % STREAM_RING_OPS] = *op;
    atomic_store(&stream->submitted, position + 1);
    pthread_mutex_unlock(&stream->lock);
    process_wake();
    return position + 1;
}

size_t stream_waits(struct stream *stream, struct pool_order waits[STREAM_WAITS_KEPT]) {
    pthread_mutex_lock(&stream->lock);
    memcpy(waits, stream->waits, sizeof stream->waits);
    size_t count =
        stream->waits_noted < STREAM_WAITS_KEPT ? stream->waits_noted : STREAM_WAITS_KEPT;
    pthread_mutex_unlock(&stream->lock);
    return count;
}

void stream_note_synchronised(struct stream *stream, uint64_t sequence) {
    struct pool_order waits[STREAM_WAITS_KEPT];
    struct pool_wait wait = {.place = {stream->id, sequence},
                             .legacy_context_id = stream->legacy ? stream->context->id : 0,
                             .others = waits};
    wait.other_count = stream_waits(stream, waits);
    pool_synchronised(&wait);
}

/* A destroyed stream counts, too: the executor has a reference until its work is done. */
struct stream *stream_by_id(uint64_t id) {
    const size_t count = object_count(&stream_pool);
    for (size_t i = 0; i < count; i++) {
        struct stream *stream = object_at(&stream_pool, i);
        if (!object_hold_unless_gone(stream)) continue;
        if (stream->id == id) return stream;
        object_drop(&stream_pool, stream);
    }
    return NULL;
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
