#include "device/streams.h"

#include <pthread.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/hold.h"
#include "base/uncancelled.h"
#include "device/contexts.h"

/* The tables are arrays: a process has seldom more than some hundred streams, and the launch path
 * does not come here. */
static struct streams streams;

_Atomic uint32_t streams_epoch = 1;
_Atomic uint32_t streams_captures;
_Atomic uint32_t streams_leaving;
static _Atomic uint64_t stale_asked_ns; /* the latest question whether a capture is stale */

#define RECORDERS_MAX 256
#define RECORDING_LOOK_NS 20000u
#define CAPTURE_WAITS_NS 1000000000u
#define STALE_AFTER_NS (2ull * CAPTURE_WAITS_NS) /* no begin waits so long, but in the driver */

/* Who records just now. Tickets grow: who waits for the end of that waits for those alone that had
 * one before. */
static struct recorder {
    _Alignas(64) _Atomic uint64_t ticket; /* 0: the place is free */
    _Atomic uint64_t context;
    _Atomic pthread_t thread;
} recorders[RECORDERS_MAX];
static _Atomic uint64_t last_ticket;
static _Thread_local uint32_t last_place __attribute__((tls_model("initial-exec")));
/* The thread has begun a capture in its own default stream. */
static _Thread_local bool captures_own __attribute__((tls_model("initial-exec")));
/* When the thread asked who owns the captures that its call begins or ends. */
static _Thread_local uint64_t asked_at_ns __attribute__((tls_model("initial-exec")));

#define HAS_ROOM(name) ARRAY_MAKE_ROOM(streams.name, streams.name##_used, 1, streams.name##_room)

struct streams *streams_tables(void) {
    return &streams;
}

static struct stream_entry *find_stream(const void *stream) {
    for (uint32_t i = 0; i < streams.streams_used; i++)
        if (streams.streams[i].stream == stream) return &streams.streams[i];
    return NULL;
}

struct capture_entry *streams_find_capture(const void *stream) {
    for (uint32_t i = 0; i < streams.captures_used; i++)
        if (streams.captures[i].stream == stream) return &streams.captures[i];
    return NULL;
}

static void count_captures(void) {
    streams.own_joined = streams.own_joined && streams.captures_used > 0;
    atomic_store(&streams_captures, streams.captures_used);
}

/* A capture ends by its own call, or with its stream, context or thread. The others stay in the
 * order in which they began. Called with LOCK_STREAMS held. */
#define FORGET_CAPTURES(condition)                               \
    uint32_t kept = 0;                                           \
    for (uint32_t i = 0; i < streams.captures_used; i++) {       \
        const struct capture_entry *each = &streams.captures[i]; \
        if (!(condition)) streams.captures[kept++] = *each;      \
    }                                                            \
    streams.captures_used = kept;                                \
    count_captures()

void streams_joining(const void *stream) {
    if (stream != DRIVER_STREAM_PER_THREAD || !streams_capture_anywhere()) return;
    HOLD(LOCK_STREAMS);
    streams.own_joined = streams.captures_used > 0;
}

static void forget_stream(struct stream_entry *entry) {
    FORGET_CAPTURES(each->stream == entry->stream);
    *entry = streams.streams[--streams.streams_used];
    atomic_fetch_add(&streams_epoch, 1);
}

/* Its events die with the context: they are forgotten, not destroyed. */
static void forget_events(struct orphan_entry *entries, uint32_t *used, uint64_t context) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *used; i++)
        if (entries[i].context != context) entries[kept++] = entries[i];
    *used = kept;
}

void streams_forget_context(uint64_t context) {
    for (uint32_t i = streams.streams_used; i-- > 0;)
        if (streams.streams[i].context == context)
            streams.streams[i] = streams.streams[--streams.streams_used];
    FORGET_CAPTURES(each->context == context);
    forget_events(streams.orphans, &streams.orphans_used, context);
    forget_events(streams.spares, &streams.spares_used, context);
    atomic_fetch_add(&streams_epoch, 1);
}

/* Called with LOCK_STREAMS held. */
static void add_stream(void *stream, const void *handle, bool blocking) {
    const struct context *context = contexts_find_handle(handle);
    if (context == NULL || !HAS_ROOM(streams)) return;
    streams.streams[streams.streams_used++] = (struct stream_entry){
        .stream = stream,
        .context = context->generation,
        .number = ++streams.last_number,
        .blocking = blocking,
    };
}

/* Its context need not be the current one: streams of green contexts are made without any. */
void streams_opened(void *stream) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    unsigned int flags = CU_STREAM_DEFAULT;
    if (cuda == NULL || cuda->stream_get_context(stream, &context) != CUDA_SUCCESS) return;
    if (!contexts_know(context)) return;
    cuda->stream_get_flags(stream, &flags);
    HOLD(LOCK_STREAMS);
    struct stream_entry *stale = find_stream(stream); /* went without a word, with its context */
    if (stale) forget_stream(stale);
    add_stream(stream, context, (flags & CU_STREAM_NON_BLOCKING) == 0);
}

uint64_t streams_known_number(void *stream, void **context) {
    HOLD(LOCK_STREAMS);
    const struct stream_entry *entry = find_stream(stream);
    const struct context *known = entry ? contexts_find(entry->context) : NULL;
    if (known == NULL) return 0;
    *context = known->handle;
    return entry->number;
}

uint64_t streams_number(void *stream, void **context) {
    const uint64_t number = streams_known_number(stream, context);
    if (number != 0) return number;
    streams_opened(stream);
    return streams_known_number(stream, context);
}

bool streams_is_blocking(uint64_t number) {
    HOLD(LOCK_STREAMS);
    const struct stream_entry *entry = streams_find_number(number);
    return entry != NULL && entry->blocking;
}

/* Without host memory for its place an event is lost to us until its context ends: to destroy it
 * could wait for a queue that is full, with the lock held. */
void streams_keep_spare(uint64_t context, void *event) {
    if (contexts_find(context) == NULL || !HAS_ROOM(spares)) return;
    streams.spares[streams.spares_used++] = (struct orphan_entry){context, event, 0};
}

static void keep_orphan(uint64_t context, void *event) {
    if (contexts_find(context) != NULL && HAS_ROOM(orphans))
        streams.orphans[streams.orphans_used++] =
            (struct orphan_entry){context, event, ++streams.last_number};
}

void *streams_record_in(uint64_t context, void *stream, void *spare) {
    const struct driver *cuda = driver_get();
    const bool relaxes = streams_capture_anywhere();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUevent event = spare;
    CUresult result = CUDA_SUCCESS;
    if (relaxes) mode = driver_relaxed_begin(cuda);
    if (event == NULL) result = cuda->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cuda->event_record(event, stream);
    if (relaxes) driver_relaxed_end(cuda, mode);
    if (result == CUDA_SUCCESS) return event;
    if (event != NULL) streams_adopt_event(context, event, false);
    return NULL;
}

struct stream_entry *streams_find_number(uint64_t number) {
    for (uint32_t i = 0; i < streams.streams_used; i++)
        if (streams.streams[i].number == number) return &streams.streams[i];
    return NULL;
}

uint32_t streams_use_begins(uint64_t context) {
    const uint64_t ticket = atomic_fetch_add(&last_ticket, 1) + 1;
    uint64_t nobody = 0;
    uint32_t place = last_place;
    while (!atomic_compare_exchange_strong(&recorders[place].ticket, &nobody, ticket)) {
        nobody = 0;
        place = (place + 1) % RECORDERS_MAX;
    }
    atomic_store(&recorders[place].thread, pthread_self());
    atomic_store(&recorders[place].context, context);
    return last_place = place;
}

bool streams_recording_begins(uint64_t context, uint32_t *place) {
    *place = streams_use_begins(context);
    if (!streams_capture_anywhere()) return true;
    streams_recording_ends(*place);
    return false;
}

void streams_recording_ends(uint32_t place) {
    atomic_store(&recorders[place].ticket, 0);
}

void *streams_record(uint64_t context, uint64_t number) {
    lock_take(LOCK_STREAMS);
    const struct stream_entry *entry = streams_find_number(number);
    void *stream = entry ? entry->stream : DRIVER_STREAM_LEGACY;
    lock_release(LOCK_STREAMS);
    if (entry == NULL && number != 0) return NULL;
    return streams_record_in(context, stream, streams_spare_event(context));
}

/* In this context, or (0) in any. A signal's handler may have left the calling thread's own. */
static void let_others_record(uint64_t context, uint64_t until_ns) {
    const uint64_t last = atomic_load(&last_ticket);
    for (uint32_t i = 0; i < RECORDERS_MAX; i++) {
        const uint64_t ticket = atomic_load(&recorders[i].ticket);
        const bool is_meant = context == 0 || atomic_load(&recorders[i].context) == context;
        if (ticket == 0 || ticket > last || !is_meant ||
            pthread_equal(atomic_load(&recorders[i].thread), pthread_self()))
            continue;
        while (atomic_load(&recorders[i].ticket) == ticket && clock_now_ns() < until_ns)
            clock_sleep_ns(RECORDING_LOOK_NS);
    }
}

void streams_let_others_record(uint64_t context) {
    let_others_record(context, UINT64_MAX);
}

/* An event behind what is in the calling thread's stream now; NULL: there is nothing, or (not
 * `is_known`) it cannot be marked. No lock is held, because recording waits where the stream's
 * queue is full. */
static void *mark_stream(const struct driver *cuda, void *stream, uint64_t generation,
                         bool *is_known) {
    lock_take(LOCK_STREAMS);
    const struct context *context = contexts_find(generation);
    void *handle = context && context->failed_result == 0 ? context->handle : NULL;
    lock_release(LOCK_STREAMS);
    *is_known = false;
    if (handle == NULL || cuda->context_push(handle) != CUDA_SUCCESS) return NULL;
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    const CUresult queried = cuda->stream_query(stream);
    CUevent event = NULL;
    if (queried == CUDA_ERROR_NOT_READY)
        event = streams_record_in(generation, stream, streams_spare_event(generation));
    *is_known = event != NULL || queried == CUDA_SUCCESS;
    driver_relaxed_end(cuda, mode);
    CUcontext popped;
    cuda->context_pop(&popped);
    return event;
}

/* A process that makes and destroys streams all day must not gather events: the oldest ones are
 * looked at whenever one is added. */
static void retire_orphans(const struct driver *cuda) {
    uint32_t looked_at = streams.orphans_used < 4 ? streams.orphans_used : 4;
    for (uint32_t i = looked_at; i-- > 0;) {
        struct orphan_entry orphan = streams.orphans[i];
        if (!contexts_may_ask(contexts_find(orphan.context)) ||
            cuda->event_query(orphan.event) != CUDA_SUCCESS)
            continue;
        memmove(&streams.orphans[i], &streams.orphans[i + 1],
                (--streams.orphans_used - i) * sizeof(*streams.orphans));
        streams_keep_spare(orphan.context, orphan.event);
    }
}

/* Whatever the count says. */
static bool ask_capturing(void *stream) {
    const struct driver *cuda = driver_get();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuda && stream != NULL && stream != DRIVER_STREAM_LEGACY &&
           cuda->stream_is_capturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Its work goes on, so the drain has to know of it. */
static void keep_work(const struct driver *cuda, const struct stream_entry *entry, void *event) {
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    if (entry->mark) keep_orphan(entry->context, entry->mark);
    if (event) keep_orphan(entry->context, event);
    retire_orphans(cuda);
    driver_relaxed_end(cuda, mode);
}

void streams_closing(void *stream) {
    UNCANCELLED();
    const struct driver *cuda = driver_get();
    lock_take(LOCK_STREAMS);
    struct stream_entry *entry = find_stream(stream);
    const struct stream_entry copy = entry ? *entry : (struct stream_entry){0};
    FORGET_CAPTURES(each->stream == stream && streams_is_created(stream));
    if (entry) {
        atomic_fetch_add(&streams_leaving, 1);
        forget_stream(entry);
    }
    lock_release(LOCK_STREAMS);
    if (copy.number == 0) return;
    streams_let_others_record(copy.context);
    const bool can_ask = cuda && !ask_capturing(stream);
    bool is_known;
    void *event = can_ask ? mark_stream(cuda, stream, copy.context, &is_known) : NULL;
    HOLD(LOCK_STREAMS);
    if (cuda) keep_work(cuda, &copy, event);
    atomic_fetch_sub(&streams_leaving, 1);
}

/* The stream cannot be asked while it captures, so what it has in flight is marked before. */
static void mark_before_capture(const struct driver *cuda, void *stream) {
    void *handle;
    const uint64_t number = streams_number(stream, &handle);
    if (number == 0 || streams_is_capturing(stream)) return;
    const uint64_t context = contexts_generation(handle);
    bool is_known;
    void *event = mark_stream(cuda, stream, context, &is_known);
    HOLD(LOCK_STREAMS);
    struct stream_entry *same = find_stream(stream);
    if (same == NULL || same->number != number) return;
    if (same->mark) streams_keep_spare(context, same->mark);
    same->mark = event;
    same->is_marked = is_known;
}

uint64_t streams_capture_owner(void *stream) {
    void *context;
    asked_at_ns = clock_now_ns();
    return streams_is_created(stream) ? streams_known_number(stream, &context)
                                      : contexts_current_generation();
}

/* Called with LOCK_STREAMS held. */
static void add_capture(void *stream, uint64_t owner) {
    const struct stream_entry *entry = find_stream(stream);
    const uint64_t unknown = streams_is_created(stream) ? 0 : owner;
    if (HAS_ROOM(captures))
        streams.captures[streams.captures_used++] = (struct capture_entry){
            .stream = stream,
            .context = entry ? entry->context : unknown,
            .owner = owner,
            .asked_ns = asked_at_ns,
            .since_ns = clock_now_ns(),
            .thread = pthread_self(),
            .blocking = entry == NULL || entry->blocking,
        };
    count_captures();
}

uint64_t streams_capture_beginning(void *stream) {
    const struct driver *cuda = driver_get();
    const bool created = streams_is_created(stream);
    if (cuda && created) mark_before_capture(cuda, stream);
    void *known; /* from here on, so that the end finds the same owner */
    if (!created) contexts_know_current(&known);
    const uint64_t owner = streams_capture_owner(stream);
    captures_own = captures_own || !created;
    lock_take(LOCK_STREAMS);
    add_capture(stream, owner);
    lock_release(LOCK_STREAMS);
    /* A recording that waits for room may wait for what this thread does next. */
    let_others_record(0, clock_now_ns() + CAPTURE_WAITS_NS);
    return owner;
}

/* An owner of 0 could not be told when the capture began. None that has begun since this thread
 * asked who the owner is: the one that it means may have been forgotten, as a stale one. */
static const struct capture_entry *find_capture_of(const void *stream, uint64_t owner) {
    for (uint32_t i = streams.captures_used; i-- > 0;) {
        const struct capture_entry *each = &streams.captures[i];
        const bool is_same = each->owner == owner || each->owner == 0;
        const bool may_end = streams_is_created(stream) || each->thread == pthread_self();
        if (each->stream == stream && is_same && may_end && each->asked_ns <= asked_at_ns)
            return each;
    }
    return NULL;
}

/* Another thread may have ended it, and destroyed its stream, before its begin has returned. So it
 * is not put back for nothing. */
void streams_capture_begun(void *stream, uint64_t owner, bool is_refused) {
    if (is_refused) return streams_capture_ended(stream, owner);
    if (atomic_load(&stale_asked_ns) <= asked_at_ns) return;
    HOLD(LOCK_STREAMS);
    const struct stream_entry *entry = find_stream(stream);
    const bool is_there = entry != NULL && entry->number == owner;
    if (is_there && find_capture_of(stream, owner) == NULL) add_capture(stream, owner);
}

void streams_capture_ended(const void *stream, uint64_t owner) {
    HOLD(LOCK_STREAMS);
    const struct capture_entry *over = find_capture_of(stream, owner);
    FORGET_CAPTURES(each == over);
    struct stream_entry *entry = find_stream(stream);
    if (entry == NULL || streams_find_capture(stream) != NULL) return;
    if (entry->mark) streams_keep_spare(entry->context, entry->mark);
    entry->mark = NULL; /* no capture that began there goes on */
    entry->is_marked = false;
}

static bool is_stale(const struct driver *cuda, const struct capture_entry *capture) {
    const struct stream_entry *entry = find_stream(capture->stream);
    const struct context *context = entry ? contexts_find(entry->context) : NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CUcontext popped;
    if (clock_now_ns() - capture->since_ns < STALE_AFTER_NS) return false;
    if (!contexts_may_ask(context) || cuda->context_push(context->handle) != CUDA_SUCCESS)
        return false;
    atomic_store(&stale_asked_ns, clock_now_ns()); /* a begin that this crosses looks again */
    const CUresult result = cuda->stream_is_capturing(entry->stream, &status);
    cuda->context_pop(&popped);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

void streams_forget_stale_captures(void) {
    const struct driver *cuda = driver_get();
    if (cuda == NULL || !streams_capture_anywhere()) return;
    UNCANCELLED();
    HOLD(LOCK_STREAMS);
    FORGET_CAPTURES(is_stale(cuda, each));
}

void streams_thread_ends(void) {
    if (!captures_own) return;
    HOLD(LOCK_STREAMS);
    FORGET_CAPTURES(each->stream == DRIVER_STREAM_PER_THREAD && each->thread == pthread_self());
}

bool streams_blocking_captures(uint64_t context) {
    if (!streams_capture_anywhere()) return false;
    if (streams.own_joined) return true; /* no other thread could ask it */
    for (uint32_t i = 0; i < streams.captures_used; i++)
        if (streams.captures[i].blocking &&
            (streams.captures[i].context == context || streams.captures[i].context == 0))
            return true;
    /* One may have joined the capture of another stream by an event. */
    for (uint32_t i = 0; i < streams.streams_used; i++)
        if (streams.streams[i].blocking && streams.streams[i].context == context &&
            streams_is_capturing(streams.streams[i].stream))
            return true;
    return false;
}

bool streams_is_capturing(void *stream) {
    return atomic_load_explicit(&streams_captures, memory_order_relaxed) > 0 &&
           ask_capturing(stream);
}

void streams_adopt_event(uint64_t context, void *event, bool pending) {
    HOLD(LOCK_STREAMS);
    (pending ? keep_orphan : streams_keep_spare)(context, event);
}

bool streams_event_is_done(uint64_t context, void *event) {
    const struct driver *cuda = driver_get();
    HOLD(LOCK_STREAMS);
    if (cuda == NULL || !contexts_may_ask(contexts_find(context))) return false;
    return driver_query_event(cuda, event) == CUDA_SUCCESS;
}

void *streams_spare_event(uint64_t context) {
    if (!lock_try(LOCK_STREAMS)) return NULL;
    void *event = NULL;
    for (uint32_t i = 0; i < streams.spares_used && event == NULL; i++) {
        if (streams.spares[i].context != context) continue;
        event = streams.spares[i].event;
        streams.spares[i] = streams.spares[--streams.spares_used];
    }
    lock_release(LOCK_STREAMS);
    return event;
}

void streams_after_fork(void) {
    streams.streams_used = streams.captures_used = 0;
    streams.orphans_used = streams.spares_used = 0;
    count_captures();
    atomic_store(&streams_leaving, 0);
    for (uint32_t i = 0; i < RECORDERS_MAX; i++)
        atomic_store(&recorders[i].ticket, 0);
    atomic_fetch_add(&streams_epoch, 1);
}
