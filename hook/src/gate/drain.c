#include "gate/drain.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/driver.h"
#include "base/locks.h"
#include "base/log.h"
#include "device/failure.h"
#include "device/streams.h"
#include "gate/gate_control.h"
#include "gate/threads.h"
#include "swap/residency.h"

/* Sticky errors that a look found. They are noted after it, because that takes LOCK_STREAMS. */
#define FAILURES_MAX 8
struct look {
    const struct driver *cuda;
    uint32_t left;
    void *current; /* the context that is pushed */
    uint32_t failures;
    struct {
        void *context;
        int result;
    } failure[FAILURES_MAX];
};

/* Makes the context current on this thread; false when it cannot be (it is being destroyed). */
static bool use_context(struct look *look, void *context) {
    if (look->current == context) return true;
    CUcontext popped;
    if (look->current) look->cuda->context_pop(&popped);
    look->current = look->cuda->context_push(context) == CUDA_SUCCESS ? context : NULL;
    return look->current != NULL;
}

static void end_look(struct look *look) {
    CUcontext popped;
    if (look->current) look->cuda->context_pop(&popped);
    look->current = NULL;
}

static void note_failures(struct look *look) {
    for (uint32_t i = 0; i < look->failures; i++)
        failure_in_context(look->failure[i].context, look->failure[i].result);
}

/* True when the answer to a query means that nothing is in flight there. Work of a context with a
 * sticky error has ended; a stream that began to capture meanwhile is looked at again later. */
static bool is_done(struct look *look, void *context, CUresult result) {
    if (result == CUDA_SUCCESS) return true;
    if (failure_is_sticky((int)result)) {
        if (look->failures < FAILURES_MAX) {
            look->failure[look->failures].context = context;
            look->failure[look->failures++].result = (int)result;
        }
        return true;
    }
    if (result == CUDA_ERROR_NOT_READY) return false;
    bool captures = result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                    result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (!captures) log_debug("drain: the driver answers %d, which counts as done", (int)result);
    return !captures;
}

static bool has_failed(const struct streams *tables, const void *context) {
    for (uint32_t i = 0; i < tables->contexts_used; i++) {
        if (tables->contexts[i].context == context) return tables->contexts[i].failed_result != 0;
    }
    return true; /* gone */
}

static bool stream_is_done(struct look *look, struct stream_entry *entry) {
    if (!use_context(look, entry->context)) return true;
    if (!streams_is_capturing(entry->stream))
        return is_done(look, entry->context, look->cuda->stream_query(entry->stream));
    /* A capturing stream cannot be asked. What was in it before is marked where its capture was
     * begun; where it joined the capture of another stream, only the end of that helps. */
    return entry->mark && is_done(look, entry->context, look->cuda->event_query(entry->mark));
}

static void look_at_streams(struct look *look, struct streams *tables) {
    for (uint32_t i = 0; i < tables->streams_used; i++) {
        struct stream_entry *entry = &tables->streams[i];
        if (!entry->draining) continue;
        entry->draining = !has_failed(tables, entry->context) && !stream_is_done(look, entry);
        look->left += entry->draining;
    }
    for (uint32_t i = tables->orphans_used; i-- > 0;) {
        struct orphan_entry *orphan = &tables->orphans[i];
        if (!has_failed(tables, orphan->context) && use_context(look, orphan->context) &&
            !is_done(look, orphan->context, look->cuda->event_query(orphan->event))) {
            look->left++;
            continue;
        }
        if (look->current == orphan->context) look->cuda->event_destroy(orphan->event);
        *orphan = tables->orphans[--tables->orphans_used];
    }
}

/* Events that threads recorded in default streams of this kind. `*uncovered` counts launches that
 * have none. Called with LOCK_THREADS held, and nobody inside the gate. */
static uint32_t look_at_rings(struct look *look, const struct streams *tables,
                              enum window_stream_kind kind, const void *context,
                              uint32_t *uncovered) {
    uint32_t busy = 0;
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        for (int i = 0; record->taken && i < WINDOW_RINGS; i++) {
            const struct window_ring *ring = &record->rings[i];
            void *event;
            bool open_end = false;
            if (ring->stream == NULL || ring->kind != kind) continue;
            if ((context && ring->context != context) || has_failed(tables, ring->context))
                continue;
            bool found = window_last_event(ring, &event, &open_end);
            *uncovered += open_end;
            if (found && use_context(look, ring->context))
                busy += !is_done(look, ring->context, look->cuda->event_query(event));
        }
    }
    return busy;
}

/* The event is kept for the next drain, which records it anew: this one may end before it is done,
 * when the gate opens again. */
static CUresult mark_legacy_stream(struct look *look, struct context_entry *entry) {
    CUevent event = entry->mark;
    CUresult result = CUDA_SUCCESS;
    if (event == NULL) result = look->cuda->event_create(&event, CU_EVENT_DISABLE_TIMING);
    entry->mark = event;
    if (result == CUDA_SUCCESS) result = look->cuda->event_record(event, DRIVER_STREAM_LEGACY);
    entry->marked = result == CUDA_SUCCESS;
    return result;
}

/* The default streams of a context, once all other work is done. While a capture is active the
 * legacy stream cannot be touched, so that only recorded events tell. */
static bool defaults_are_done(struct look *look, const struct streams *tables,
                              struct context_entry *entry) {
    if (entry->failed_result || !use_context(look, entry->context)) return true;
    if (streams_capture_anywhere()) {
        uint32_t uncovered = 0;
        uint32_t busy =
            look_at_rings(look, tables, WINDOW_STREAM_LEGACY, entry->context, &uncovered);
        return busy + uncovered == 0 && !gate_was_unbounded();
    }
    if (!entry->marked) {
        CUresult queried = look->cuda->stream_query(DRIVER_STREAM_LEGACY);
        if (!is_done(look, entry->context, queried)) return false;
        if (!gate_was_unbounded() || queried != CUDA_SUCCESS) return true;
        /* Without a window nothing was recorded in the threads' own default streams. The query has
         * answered for them too as far as drivers were seen to do; an event in the legacy stream is
         * documented to wait for them. */
        CUresult result = mark_legacy_stream(look, entry);
        if (result != CUDA_SUCCESS) return is_done(look, entry->context, result);
    }
    return is_done(look, entry->context, look->cuda->event_query(entry->mark));
}

static void look_at_defaults(struct look *look, struct streams *tables) {
    for (uint32_t i = 0; i < tables->contexts_used; i++) {
        struct context_entry *entry = &tables->contexts[i];
        if (!entry->draining) continue;
        entry->draining = !defaults_are_done(look, tables, entry);
        look->left += entry->draining;
    }
}

static uint32_t look_once(enum drain_phase phase, const struct driver *cuda) {
    /* What is being taken down is in no table any more; the driver waits for its work. */
    struct look look = {.cuda = cuda, .left = atomic_load(&streams_contexts_closing)};
    lock_take(LOCK_THREADS);
    struct streams *tables = streams_lock();
    if (phase == DRAIN_STREAMS) {
        uint32_t uncovered = 0;
        look_at_streams(&look, tables);
        look.left += look_at_rings(&look, tables, WINDOW_STREAM_PER_THREAD, NULL, &uncovered);
    } else {
        look_at_defaults(&look, tables);
    }
    end_look(&look);
    streams_unlock();
    lock_release(LOCK_THREADS);
    note_failures(&look);
    return look.left;
}

static void mark_all_draining(void) {
    struct streams *tables = streams_lock();
    for (uint32_t i = 0; i < tables->streams_used; i++)
        tables->streams[i].draining = true;
    for (uint32_t i = 0; i < tables->contexts_used; i++) {
        tables->contexts[i].draining = true;
        tables->contexts[i].marked = false;
    }
    streams_unlock();
}

void drain_begin(struct drain *drain) {
    *drain = (struct drain){.phase = DRAIN_LEAVING, .left = UINT32_MAX};
    mark_all_draining();
}

enum drain_answer drain_step(struct drain *drain) {
    const struct driver *cuda = driver_get();
    uint32_t left_before = drain->left;
    if (drain->phase == DRAIN_LEAVING) {
        /* A claim that fits the budget goes on through the shut gate (residency.h). */
        drain->left = gate_calls_inside() + (residency_claims_out() > 0);
        if (drain->left > 0) return drain->left < left_before ? DRAIN_PROGRESS : DRAIN_BUSY;
        drain->closed_at_ns = clock_now_ns();
        drain->phase = cuda ? DRAIN_STREAMS : DRAIN_OVER;
        left_before = UINT32_MAX;
    }
    while (drain->phase != DRAIN_OVER) {
        drain->left = look_once(drain->phase, cuda);
        if (drain->left > 0) return drain->left < left_before ? DRAIN_PROGRESS : DRAIN_BUSY;
        drain->phase = drain->phase == DRAIN_STREAMS ? DRAIN_DEFAULTS : DRAIN_OVER;
        left_before = UINT32_MAX;
    }
    drain->drained_at_ns = clock_now_ns();
    return DRAIN_DONE;
}

bool drain_device_busy(void) {
    const struct driver *cuda = driver_get();
    if (cuda == NULL) return false;
    struct look look = {.cuda = cuda};
    struct streams *tables = streams_lock();
    bool captures = streams_capture_anywhere();
    for (uint32_t i = 0; i < tables->streams_used && look.left == 0; i++) {
        struct stream_entry *entry = &tables->streams[i];
        if (!has_failed(tables, entry->context)) look.left += !stream_is_done(&look, entry);
    }
    for (uint32_t i = 0; i < tables->contexts_used && look.left == 0 && !captures; i++) {
        struct context_entry *entry = &tables->contexts[i];
        if (entry->failed_result == 0 && use_context(&look, entry->context))
            look.left += !is_done(&look, entry->context, cuda->stream_query(DRIVER_STREAM_LEGACY));
    }
    end_look(&look);
    streams_unlock();
    note_failures(&look);
    return look.left > 0;
}
