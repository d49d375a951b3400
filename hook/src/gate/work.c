#include "gate/work.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/hold.h"
#include "base/uncancelled.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "gate/threads.h"

/* A context is never synchronised: that ends every capture which begins meanwhile. The streams are
 * asked one by one until each was seen idle. Where another thread keeps one busy, an event says
 * what was in it. */
#define PAUSE_NS 20000u
#define SPIN_NS 50000u
#define PATIENCE_NS 2000000u

struct busy_stream {
    uint64_t number;
    CUevent event; /* NULL: the stream itself is asked */
};

struct work {
    const struct driver *cuda;
    uint64_t context;
    struct busy_stream *streams;
    uint32_t used, room;
    uint64_t orphans_until; /* streams that were destroyed up to then */
    bool orphans_busy;
    bool was_leaving; /* a stream was on its way out: its event may have come since */
    bool defaults_busy;
    CUevent defaults_event;
    bool is_looked_at; /* the streams that are busy are in the table */
    CUresult error;    /* its context has failed */
    CUresult unknown;  /* what the driver last answered that tells nothing */
    uint64_t unknown_since_ns;
};

enum work_state work_state_of(CUresult answer) {
    const bool is_gone = answer == CUDA_ERROR_INVALID_HANDLE ||
                         answer == CUDA_ERROR_INVALID_CONTEXT ||
                         answer == CUDA_ERROR_CONTEXT_IS_DESTROYED;
    const bool captures = answer >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                          answer <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (answer == CUDA_SUCCESS || is_gone) return WORK_OVER;
    if (failure_is_sticky((int)answer)) return WORK_FAILED;
    return answer == CUDA_ERROR_NOT_READY || captures ? WORK_RUNS : WORK_UNKNOWN;
}

static bool is_over(struct work *work, CUresult answer) {
    const enum work_state state = work_state_of(answer);
    if (state == WORK_FAILED) work->error = answer;
    if (state == WORK_UNKNOWN) work->unknown = answer;
    return state == WORK_OVER || work->error != CUDA_SUCCESS;
}

CUresult work_ask_stream(const struct driver *cuda, const struct stream_entry *entry) {
    const bool captures = streams_is_capturing(entry->stream);
    /* A query ends a capture that begins before the driver gets to it. */
    if (!captures && streams_find_capture(entry->stream) == NULL)
        return cuda->stream_query(entry->stream);
    if (!captures || !entry->is_marked) return CUDA_ERROR_NOT_READY;
    return entry->mark == NULL ? CUDA_SUCCESS : cuda->event_query(entry->mark);
}

static bool stream_is_over(struct work *work, const struct stream_entry *entry, CUevent event) {
    return is_over(work,
                   event ? work->cuda->event_query(event) : work_ask_stream(work->cuda, entry));
}

static bool add(struct work *work, uint64_t number) {
    if (!ARRAY_MAKE_ROOM(work->streams, work->used, 1, work->room)) return false;
    work->streams[work->used++] = (struct busy_stream){.number = number};
    return true;
}

/* The first look; false where there is no host memory to note what is busy. */
static bool look_at_all(struct work *work, const struct streams *tables) {
    bool noted = true;
    for (uint32_t i = 0; i < tables->streams_used && noted; i++) {
        const struct stream_entry *entry = &tables->streams[i];
        if (entry->context == work->context && !stream_is_over(work, entry, NULL))
            noted = add(work, entry->number);
    }
    work->orphans_until = tables->last_number;
    work->defaults_busy = true;
    return noted;
}

static void look_at_busy(struct work *work, const struct streams *tables) {
    for (uint32_t i = work->used; i-- > 0;) {
        const struct busy_stream *busy = &work->streams[i];
        const struct stream_entry *entry = streams_find_number(busy->number);
        if (entry == NULL) work->orphans_until = tables->last_number; /* destroyed meanwhile */
        if (entry != NULL && !stream_is_over(work, entry, busy->event)) continue;
        if (busy->event != NULL) streams_keep_spare(work->context, busy->event);
        work->streams[i] = work->streams[--work->used];
    }
}

static void look_at_rest(struct work *work, const struct streams *tables) {
    if (work->was_leaving) work->orphans_until = tables->last_number;
    work->orphans_busy = work->was_leaving = atomic_load(&streams_leaving) > 0;
    for (uint32_t i = 0; i < tables->orphans_used; i++) {
        const struct orphan_entry *orphan = &tables->orphans[i];
        if (orphan->context == work->context && orphan->number <= work->orphans_until)
            work->orphans_busy |= !is_over(work, work->cuda->event_query(orphan->event));
    }
    const bool asks_event = work->defaults_event != NULL;
    if (!work->defaults_busy || (!asks_event && streams_blocking_captures(work->context))) return;
    work->defaults_busy =
        !is_over(work, asks_event ? work->cuda->event_query(work->defaults_event)
                                  : work->cuda->stream_query(DRIVER_STREAM_LEGACY));
}

/* True when the context's work is over, as far as it was there at the first look. */
static bool look(struct work *work) {
    const struct driver *cuda = work->cuda;
    CUcontext popped;
    bool noted = true;
    work->unknown = CUDA_SUCCESS;
    lock_take(LOCK_STREAMS);
    const struct context *context = contexts_find(work->context);
    if (context != NULL) work->error = (CUresult)context->failed_result;
    const bool leaves = context != NULL && context->leaving > 0;
    CUresult pushed = CUDA_ERROR_INVALID_CONTEXT;
    if (contexts_may_ask(context)) pushed = cuda->context_push(context->handle);
    const bool asks = pushed == CUDA_SUCCESS;
    if (asks) {
        const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
        const struct streams *tables = streams_tables();
        if (work->is_looked_at)
            look_at_busy(work, tables);
        else
            noted = look_at_all(work, tables);
        look_at_rest(work, tables);
        driver_relaxed_end(cuda, mode);
        cuda->context_pop(&popped);
    }
    lock_release(LOCK_STREAMS);
    work->is_looked_at |= asks;
    if (!noted) work->error = CUDA_ERROR_OUT_OF_MEMORY;
    if (leaves && work->error == CUDA_SUCCESS) return false; /* nobody may touch it now */
    if (!asks) return is_over(work, pushed);
    return work->error != CUDA_SUCCESS ||
           (work->used == 0 && !work->orphans_busy && !work->defaults_busy);
}

/* An event in each stream that does not become idle by itself, and in the legacy stream once the
 * others are done: it adds an order between blocking streams. Without the lock, because recording
 * waits where a queue is full; streams do not end meanwhile, and captures do not begin. False: one
 * has begun, so that nothing can be recorded. */
static bool record(struct work *work) {
    SIGNALS_WAIT();
    UNCANCELLED();
    CUcontext popped;
    uint32_t place;
    if (!streams_recording_begins(work->context, &place)) return false;
    lock_take(LOCK_STREAMS);
    const struct context *context = contexts_find(work->context);
    void *handle = contexts_may_ask(context) ? context->handle : NULL;
    lock_release(LOCK_STREAMS);
    if (handle != NULL && work->cuda->context_push(handle) == CUDA_SUCCESS) {
        const CUstreamCaptureMode mode = driver_relaxed_begin(work->cuda);
        for (uint32_t i = 0; i < work->used; i++)
            if (work->streams[i].event == NULL)
                work->streams[i].event = streams_record(work->context, work->streams[i].number);
        if (work->used == 0 && work->defaults_busy && work->defaults_event == NULL)
            work->defaults_event = streams_record(work->context, 0);
        driver_relaxed_end(work->cuda, mode);
        work->cuda->context_pop(&popped);
    }
    streams_recording_ends(place);
    return true;
}

static bool has_unrecorded(const struct work *work) {
    for (uint32_t i = 0; i < work->used; i++)
        if (work->streams[i].event == NULL) return true;
    return work->used == 0 && work->defaults_busy && work->defaults_event == NULL;
}

/* The driver has told nothing for so long that it will not. */
static bool stays_unknown(struct work *work, uint64_t now_ns) {
    if (work->unknown == CUDA_SUCCESS) work->unknown_since_ns = now_ns;
    return now_ns - work->unknown_since_ns > WORK_UNKNOWN_NS;
}

static CUresult wait_on(struct work *work) {
    const uint64_t began_ns = clock_now_ns();
    work->unknown_since_ns = began_ns;
    while (!look(work)) {
        const uint64_t now_ns = clock_now_ns();
        if (stays_unknown(work, now_ns)) return work->unknown;
        if (now_ns - began_ns > PATIENCE_NS && has_unrecorded(work) && !record(work))
            return CUDA_ERROR_NOT_READY;
        if (now_ns - began_ns > SPIN_NS) clock_sleep_ns(PAUSE_NS);
    }
    return work->error;
}

static void end(struct work *work) {
    lock_take(LOCK_STREAMS);
    for (uint32_t i = 0; i < work->used; i++)
        if (work->streams[i].event != NULL)
            streams_keep_spare(work->context, work->streams[i].event);
    if (work->defaults_event != NULL) streams_keep_spare(work->context, work->defaults_event);
    lock_release(LOCK_STREAMS);
    free(work->streams);
}

CUresult work_wait(uint64_t context) {
    struct work work = {.cuda = driver_get(), .context = context};
    CUresult result = CUDA_SUCCESS;
    if (look(&work)) {
        result = work.error;
    } else {
        threads_synchronise_began();
        result = wait_on(&work);
        threads_synchronise_ended(CUDA_SUCCESS);
    }
    end(&work);
    if (failure_is_sticky((int)result)) failure_of(context, (int)result);
    return result;
}

static bool ask_about(const struct driver *cuda, uint64_t context, uint64_t number) {
    if (number == 0)
        return !streams_blocking_captures(context) &&
               cuda->stream_query(DRIVER_STREAM_LEGACY) == CUDA_SUCCESS;
    const struct stream_entry *entry = streams_find_number(number);
    return entry != NULL && work_ask_stream(cuda, entry) == CUDA_SUCCESS;
}

bool work_of_stream_is_over(uint64_t context, uint64_t number) {
    const struct driver *cuda = driver_get();
    CUcontext popped;
    HOLD(LOCK_STREAMS);
    const struct context *known = contexts_find(context);
    if (!contexts_may_ask(known) || cuda->context_push(known->handle) != CUDA_SUCCESS) return false;
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    const bool over = ask_about(cuda, context, number);
    driver_relaxed_end(cuda, mode);
    cuda->context_pop(&popped);
    return over;
}

bool work_stream_is_idle(void *stream) {
    SIGNALS_WAIT();
    UNCANCELLED();
    uint32_t place;
    if (!streams_recording_begins(STREAMS_NO_CONTEXT, &place)) return false;
    const bool idle = driver_get()->stream_query(stream) == CUDA_SUCCESS;
    streams_recording_ends(place);
    return idle;
}

bool work_follow(uint64_t context, void *event, void *stream) {
    SIGNALS_WAIT();
    UNCANCELLED();
    const uint32_t place = streams_use_begins(context);
    lock_take(LOCK_STREAMS);
    bool follows = contexts_may_ask(contexts_find(context));
    lock_release(LOCK_STREAMS);
    if (follows) follows = driver_get()->stream_wait_event(stream, event, 0) == CUDA_SUCCESS;
    streams_recording_ends(place);
    return follows;
}

void *work_mark(uint64_t context, void *stream, bool is_legacy) {
    SIGNALS_WAIT();
    UNCANCELLED();
    const struct driver *cuda = driver_get();
    CUcontext current = NULL, popped;
    CUevent made = NULL;
    uint32_t place = 0;
    if (is_legacy && !streams_recording_begins(context, &place)) return NULL;
    lock_take(LOCK_STREAMS);
    const struct context *known = contexts_find(context);
    void *handle = contexts_may_ask(known) ? known->handle : NULL;
    lock_release(LOCK_STREAMS);
    CUresult result = handle ? cuda->context_get_current(&current) : CUDA_ERROR_INVALID_CONTEXT;
    const bool pushes = handle != NULL && (result != CUDA_SUCCESS || current != handle);
    if (pushes) result = cuda->context_push(handle);
    if (result == CUDA_SUCCESS) {
        made = streams_record_in(context, stream, streams_spare_event(context));
        if (pushes) cuda->context_pop(&popped);
    }
    if (is_legacy) streams_recording_ends(place);
    return made;
}

bool work_is_over(uint64_t context) {
    struct work work = {.cuda = driver_get(), .context = context};
    const bool looked = look(&work);
    const bool over = looked && (work.error == CUDA_SUCCESS || failure_is_sticky((int)work.error));
    end(&work);
    return over;
}
