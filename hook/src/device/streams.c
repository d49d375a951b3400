#include "device/streams.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/driver.h"
#include "device/contexts.h"

/* The tables are arrays: a process has seldom more than some hundred streams, and the launch path
 * does not come here. */
static struct streams streams;
static uint64_t last_number; /* guarded by LOCK_STREAMS */

_Atomic uint32_t streams_epoch = 1;
_Atomic uint32_t streams_captures;

#define SPARES_MAX 256

/* room_for_NAME() makes room for one more element; false when there is no memory. */
#define DEFINE_ROOM_FOR(name)                                                 \
    static bool room_for_##name(void) {                                       \
        if (streams.name##_used < streams.name##_room) return true;           \
        uint32_t wanted = streams.name##_room ? streams.name##_room * 2 : 16; \
        void *grown = realloc(streams.name, wanted * sizeof(*streams.name));  \
        if (grown == NULL) return false;                                      \
        streams.name = grown;                                                 \
        streams.name##_room = wanted;                                         \
        return true;                                                          \
    }

DEFINE_ROOM_FOR(streams)
DEFINE_ROOM_FOR(orphans)
DEFINE_ROOM_FOR(spares)
DEFINE_ROOM_FOR(captures)

struct streams *streams_tables(void) {
    return &streams;
}

static struct stream_entry *find_stream(void *stream) {
    for (uint32_t i = 0; i < streams.streams_used; i++) {
        if (streams.streams[i].stream == stream) return &streams.streams[i];
    }
    return NULL;
}

/* Its events die with the context: they are forgotten, not destroyed. */
static void forget_events(struct orphan_entry *entries, uint32_t *used, uint64_t context) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *used; i++) {
        if (entries[i].context != context) entries[kept++] = entries[i];
    }
    *used = kept;
}

/* A capture ends by its own call, or with its stream. Called with LOCK_STREAMS held. */
static void forget_capture(const void *stream) {
    for (uint32_t i = 0; i < streams.captures_used; i++) {
        if (streams.captures[i] != stream) continue;
        streams.captures[i] = streams.captures[--streams.captures_used];
        break;
    }
    atomic_store(&streams_captures, streams.captures_used);
}

static void forget_streams(uint64_t context) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < streams.streams_used; i++) {
        if (streams.streams[i].context == context)
            forget_capture(streams.streams[i].stream);
        else
            streams.streams[kept++] = streams.streams[i];
    }
    streams.streams_used = kept;
}

static void forget_stream(struct stream_entry *entry) {
    forget_capture(entry->stream);
    *entry = streams.streams[--streams.streams_used];
    atomic_fetch_add(&streams_epoch, 1);
}

void streams_forget_context(uint64_t context) {
    forget_streams(context);
    forget_events(streams.orphans, &streams.orphans_used, context);
    forget_events(streams.spares, &streams.spares_used, context);
    atomic_fetch_add(&streams_epoch, 1);
}

/* Called with LOCK_STREAMS held. */
static struct stream_entry *add_stream(void *stream, const void *handle) {
    const struct context *context = contexts_find_handle(handle);
    if (context == NULL || !room_for_streams()) return NULL;
    struct stream_entry *entry = &streams.streams[streams.streams_used++];
    *entry = (struct stream_entry){
        .stream = stream, .context = context->generation, .number = ++last_number};
    return entry;
}

/* Its context need not be the current one: streams of green contexts are made without any. */
void streams_opened(void *stream) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    if (cuda == NULL || cuda->stream_get_context(stream, &context) != CUDA_SUCCESS) return;
    if (!contexts_know(context)) return;
    contexts_lock();
    struct stream_entry *stale = find_stream(stream); /* went without a word, with its context */
    if (stale) forget_stream(stale);
    add_stream(stream, context);
    contexts_unlock();
}

static uint64_t number_of(void *stream, void **context) {
    contexts_lock();
    const struct stream_entry *entry = find_stream(stream);
    const struct context *known = entry ? contexts_find(entry->context) : NULL;
    const uint64_t number = known ? entry->number : 0;
    if (known) *context = known->handle;
    contexts_unlock();
    return number;
}

uint64_t streams_number(void *stream, void **context) {
    const uint64_t number = number_of(stream, context);
    if (number != 0) return number;
    streams_opened(stream);
    return number_of(stream, context);
}

/* Called with LOCK_STREAMS held. */
static void *take_spare(uint64_t context) {
    for (uint32_t i = 0; i < streams.spares_used; i++) {
        if (streams.spares[i].context != context) continue;
        void *event = streams.spares[i].event;
        streams.spares[i] = streams.spares[--streams.spares_used];
        return event;
    }
    return NULL;
}

/* Marks what is in the stream now. Called with LOCK_STREAMS held, the context pushed. */
static void *mark_stream(const struct driver *cuda, void *stream, uint64_t context) {
    CUevent event = take_spare(context);
    if (event == NULL && cuda->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (cuda->event_record(event, stream) != CUDA_SUCCESS) {
        cuda->event_destroy(event);
        return NULL;
    }
    return event;
}

static void keep_spare(const struct driver *cuda, uint64_t context, void *event) {
    if (streams.spares_used < SPARES_MAX && room_for_spares())
        streams.spares[streams.spares_used++] = (struct orphan_entry){context, event};
    else if (cuda)
        cuda->event_destroy(event);
}

static void keep_orphan(const struct driver *cuda, uint64_t context, void *event) {
    if (room_for_orphans())
        streams.orphans[streams.orphans_used++] = (struct orphan_entry){context, event};
    else if (cuda)
        cuda->event_destroy(event);
}

/* A destroyed stream finishes its work, so the drain has to know of it. */
static void orphan_work(const struct driver *cuda, struct stream_entry *entry) {
    bool capturing = streams_is_capturing(entry->stream);
    if (entry->mark) keep_orphan(cuda, entry->context, entry->mark);
    entry->mark = NULL;
    const struct context *context = contexts_find(entry->context);
    if (capturing || context == NULL || context->failed_result) return;
    if (cuda->context_push(context->handle) != CUDA_SUCCESS) return;
    if (cuda->stream_query(entry->stream) == CUDA_ERROR_NOT_READY) {
        void *event = mark_stream(cuda, entry->stream, entry->context);
        if (event) keep_orphan(cuda, entry->context, event);
    }
    CUcontext popped;
    cuda->context_pop(&popped);
}

/* A process that makes and destroys streams all day must not gather events: the oldest ones are
 * looked at whenever one is added. */
static void retire_orphans(const struct driver *cuda) {
    uint32_t looked_at = streams.orphans_used < 4 ? streams.orphans_used : 4;
    for (uint32_t i = looked_at; i-- > 0;) {
        struct orphan_entry orphan = streams.orphans[i];
        if (cuda->event_query(orphan.event) == CUDA_ERROR_NOT_READY) continue;
        memmove(&streams.orphans[i], &streams.orphans[i + 1],
                (--streams.orphans_used - i) * sizeof(*streams.orphans));
        keep_spare(cuda, orphan.context, orphan.event);
    }
}

void streams_closing(void *stream) {
    const struct driver *cuda = driver_get();
    contexts_lock();
    struct stream_entry *entry = find_stream(stream);
    if (entry) {
        if (cuda) {
            CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
            orphan_work(cuda, entry);
            retire_orphans(cuda);
            driver_relaxed_end(cuda, mode);
        }
        forget_stream(entry);
    }
    contexts_unlock();
}

/* The stream cannot be asked while it captures, so what it has in flight is marked before. */
static void mark_before_capture(const struct driver *cuda, void *stream) {
    void *context = NULL;
    if (streams_number(stream, &context) == 0 || streams_is_capturing(stream)) return;
    contexts_lock();
    struct stream_entry *entry = find_stream(stream);
    if (entry && cuda->context_push(context) == CUDA_SUCCESS) {
        CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
        if (entry->mark) keep_spare(cuda, entry->context, entry->mark);
        entry->mark = mark_stream(cuda, stream, entry->context);
        driver_relaxed_end(cuda, mode);
        CUcontext popped;
        cuda->context_pop(&popped);
    }
    contexts_unlock();
}

void streams_capture_beginning(void *stream) {
    const struct driver *cuda = driver_get();
    if (cuda && streams_is_created(stream)) mark_before_capture(cuda, stream);
    contexts_lock();
    if (room_for_captures()) streams.captures[streams.captures_used++] = stream;
    atomic_store(&streams_captures, streams.captures_used);
    contexts_unlock();
}

void streams_capture_ended(void *stream) {
    /* An end that the driver refused (a wrong thread, say) leaves the capture going. */
    if (streams_is_created(stream) && streams_is_capturing(stream)) return;
    contexts_lock();
    forget_capture(stream);
    struct stream_entry *entry = find_stream(stream);
    if (entry && entry->mark) {
        keep_spare(driver_get(), entry->context, entry->mark);
        entry->mark = NULL;
    }
    contexts_unlock();
}

bool streams_is_capturing(void *stream) {
    if (atomic_load_explicit(&streams_captures, memory_order_relaxed) == 0) return false;
    const struct driver *cuda = driver_get();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuda && stream != NULL && stream != DRIVER_STREAM_LEGACY &&
           cuda->stream_is_capturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void streams_adopt_event(uint64_t context, void *event, bool pending) {
    const struct driver *cuda = driver_get();
    contexts_lock();
    if (contexts_find(context) == NULL) { /* the event died with it */
    } else if (pending) {
        keep_orphan(cuda, context, event);
    } else {
        keep_spare(cuda, context, event);
    }
    contexts_unlock();
}

bool streams_event_is_done(uint64_t context, void *event) {
    const struct driver *cuda = driver_get();
    bool done = false;
    contexts_lock();
    if (cuda && contexts_may_ask(contexts_find(context))) {
        const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
        done = cuda->event_query(event) == CUDA_SUCCESS;
        driver_relaxed_end(cuda, mode);
    }
    contexts_unlock();
    return done;
}

void *streams_spare_event(uint64_t context) {
    contexts_lock();
    void *event = take_spare(context);
    contexts_unlock();
    return event;
}

void streams_after_fork(void) {
    streams.streams_used = 0;
    streams.orphans_used = 0;
    streams.spares_used = 0;
    streams.captures_used = 0;
    atomic_store(&streams_captures, 0);
    atomic_fetch_add(&streams_epoch, 1);
}
