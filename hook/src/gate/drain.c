#include "gate/drain.h"

#include "base/clock.h"
#include "base/hold.h"
#include "base/log.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "gate/gate_control.h"
#include "gate/threads.h"
#include "gate/work.h"
#include "swap/residency.h"

/* Sticky errors that a look found. They are noted after it, because that takes LOCK_STREAMS. */
#define FAILURES_MAX 8
struct look {
    const struct driver *cuda;
    uint32_t left;
    uint64_t current; /* the context that is pushed */
    uint32_t failures;
    struct {
        uint64_t context;
        int result;
    } failure[FAILURES_MAX];
};

static void end_look(struct look *look) {
    CUcontext popped;
    if (look->current) look->cuda->context_pop(&popped);
    look->current = 0;
}

static void note_failures(struct look *look) {
    for (uint32_t i = 0; i < look->failures; i++)
        failure_of(look->failure[i].context, look->failure[i].result);
}

static void note_failure(struct look *look, uint64_t context, CUresult result) {
    if (look->failures == FAILURES_MAX) return;
    look->failure[look->failures].context = context;
    look->failure[look->failures++].result = (int)result;
}

/* True when the answer to a query means that nothing is in flight there. Work of a context with a
 * sticky error has ended; a stream that began to capture meanwhile is looked at again later. Any
 * other error tells nothing, and is asked again. Where that does not help, the context is given up
 * as one that has failed: its memory stays where it is. */
static bool is_done(struct look *look, uint64_t generation, CUresult result) {
    const enum work_state state = work_state_of(result);
    if (state == WORK_FAILED) note_failure(look, generation, result);
    struct context *context = contexts_find(generation);
    if (state != WORK_UNKNOWN || context == NULL) return state == WORK_OVER || state == WORK_FAILED;
    const uint64_t now_ns = clock_now_ns();
    if (context->unknown_since_ns == 0) {
        context->unknown_since_ns = now_ns;
        log_debug("drain: the driver answers %d, which tells nothing", (int)result);
    }
    if (now_ns - context->unknown_since_ns < WORK_UNKNOWN_NS) return false;
    note_failure(look, generation, result);
    return true;
}

/* What the context has to say for its streams. */
enum word {
    WORD_ASK,  /* it is current on this thread: they can be asked */
    WORD_OVER, /* it is gone or has failed: nothing of it runs */
    WORD_BUSY, /* it leaves: nobody may touch it, and the driver waits for its work */
};

static enum word use_context(struct look *look, uint64_t generation) {
    const struct context *context = contexts_find(generation);
    CUcontext popped;
    if (context == NULL || context->failed_result) return WORD_OVER;
    if (context->leaving > 0) return WORD_BUSY;
    if (look->current == generation) return WORD_ASK;
    if (look->current) look->cuda->context_pop(&popped);
    const CUresult result = look->cuda->context_push(context->handle);
    look->current = result == CUDA_SUCCESS ? generation : 0;
    if (result == CUDA_SUCCESS) return WORD_ASK;
    return is_done(look, generation, result) ? WORD_OVER : WORD_BUSY;
}

static bool stream_is_done(struct look *look, const struct stream_entry *entry) {
    const enum word word = use_context(look, entry->context);
    if (word != WORD_ASK) return word == WORD_OVER;
    return is_done(look, entry->context, work_ask_stream(look->cuda, entry));
}

static void look_at_streams(struct look *look, struct streams *tables) {
    for (uint32_t i = 0; i < tables->streams_used; i++) {
        struct stream_entry *entry = &tables->streams[i];
        if (!entry->draining) continue;
        entry->draining = !stream_is_done(look, entry);
        look->left += entry->draining;
    }
    for (uint32_t i = tables->orphans_used; i-- > 0;) {
        struct orphan_entry *orphan = &tables->orphans[i];
        const enum word word = use_context(look, orphan->context);
        if (word == WORD_BUSY ||
            (word == WORD_ASK &&
             !is_done(look, orphan->context, look->cuda->event_query(orphan->event)))) {
            look->left++;
            continue;
        }
        streams_keep_spare(orphan->context, orphan->event);
        *orphan = tables->orphans[--tables->orphans_used];
    }
}

/* Events that threads recorded in their own default streams. Called with LOCK_THREADS held, and
 * nobody inside the gate. */
static uint32_t look_at_rings(struct look *look) {
    uint32_t busy = 0;
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        for (int i = 0; record->taken && i < WINDOW_RINGS; i++) {
            const struct window_ring *ring = &record->rings[i];
            void *event;
            if (ring->stream == NULL || ring->kind != WINDOW_STREAM_PER_THREAD) continue;
            const enum word word = use_context(look, ring->context_number);
            if (word == WORD_OVER || !window_last_event(ring, &event)) continue;
            busy += word == WORD_BUSY ||
                    !is_done(look, ring->context_number, look->cuda->event_query(event));
        }
    }
    return busy;
}

/* The event is kept for the next drain, which records it anew: this one may end before it is done,
 * when the gate opens again. */
static CUresult mark_stream(struct look *look, CUstream stream, void **mark, bool *is_marked) {
    CUevent event = *mark;
    CUresult result = CUDA_SUCCESS;
    if (event == NULL) result = look->cuda->event_create(&event, CU_EVENT_DISABLE_TIMING);
    *mark = event;
    if (result == CUDA_SUCCESS && !*is_marked) result = look->cuda->event_record(event, stream);
    *is_marked = result == CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? look->cuda->event_query(event) : result;
}

/* While a blocking stream captures, nobody may touch the legacy stream: not even a query. An event
 * in another blocking stream waits for what the legacy stream has, and leaves the capture alone. */
static CUresult ask_beside(struct look *look, struct context *entry) {
    CUstream beside = entry->beside;
    CUresult result = CUDA_SUCCESS;
    if (beside == NULL) result = look->cuda->stream_create(&beside, CU_STREAM_DEFAULT);
    entry->beside = beside;
    if (result != CUDA_SUCCESS) return result;
    return mark_stream(look, beside, &entry->beside_mark, &entry->beside_marked);
}

/* The default streams of a context, once all other work is done. */
static bool defaults_are_done(struct look *look, struct context *entry) {
    const enum word word = use_context(look, entry->generation);
    if (word != WORD_ASK) return word == WORD_OVER;
    if (streams_blocking_captures(entry->generation)) {
        /* Threads' own default streams have their events, but where the gate was open without a
         * window. Then there is nobody to ask until the capture ends. */
        const bool unknown = gate_was_unbounded() && atomic_load(&gate_saw_per_thread);
        return !unknown && is_done(look, entry->generation, ask_beside(look, entry));
    }
    if (!entry->marked) {
        CUresult queried = look->cuda->stream_query(DRIVER_STREAM_LEGACY);
        if (!is_done(look, entry->generation, queried)) return false;
        if (!gate_was_unbounded() || queried != CUDA_SUCCESS) return true;
    }
    /* Without a window nothing was recorded in the threads' own default streams. The query has
     * answered for them too as far as drivers were seen to do; an event in the legacy stream is
     * documented to wait for them. */
    return is_done(look, entry->generation,
                   mark_stream(look, DRIVER_STREAM_LEGACY, &entry->mark, &entry->marked));
}

static void look_at_defaults(struct look *look) {
    uint32_t used;
    struct context *contexts = contexts_table(&used);
    for (uint32_t i = 0; i < used; i++) {
        struct context *entry = &contexts[i];
        if (!entry->draining) continue;
        entry->draining = !defaults_are_done(look, entry);
        look->left += entry->draining;
    }
}

static uint32_t look_once(enum drain_phase phase, const struct driver *cuda) {
    /* What is being taken down is in no table any more; the driver waits for its work. */
    struct look look = {.cuda = cuda, .left = atomic_load(&contexts_leaving)};
    look.left += atomic_load(&streams_leaving);
    lock_take(LOCK_THREADS);
    lock_take(LOCK_STREAMS);
    if (phase == DRAIN_STREAMS) {
        look_at_streams(&look, streams_tables());
        look.left += look_at_rings(&look);
    } else {
        look_at_defaults(&look);
    }
    end_look(&look);
    lock_release(LOCK_STREAMS);
    lock_release(LOCK_THREADS);
    note_failures(&look);
    return look.left;
}

void drain_begin(struct drain *drain) {
    uint32_t used;
    *drain = (struct drain){.phase = DRAIN_LEAVING, .left = UINT32_MAX};
    HOLD(LOCK_STREAMS);
    struct streams *tables = streams_tables();
    struct context *contexts = contexts_table(&used);
    for (uint32_t i = 0; i < tables->streams_used; i++)
        tables->streams[i].draining = true;
    for (uint32_t i = 0; i < used; i++) {
        contexts[i].draining = true;
        contexts[i].marked = contexts[i].beside_marked = false;
        contexts[i].unknown_since_ns = 0;
    }
}

enum drain_answer drain_step(struct drain *drain) {
    const struct driver *cuda = driver_get();
    uint32_t left_before = drain->left;
    if (drain->phase == DRAIN_LEAVING) {
        /* A claim that fits the budget goes on through the shut gate (residency.h). */
        drain->left = gate_calls_inside(); /* first: a claim is out before its mark is left */
        drain->left += residency_claims_out() > 0;
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
    uint32_t used;
    lock_take(LOCK_STREAMS);
    const struct streams *tables = streams_tables();
    const struct context *contexts = contexts_table(&used);
    for (uint32_t i = 0; i < tables->streams_used && look.left == 0; i++)
        look.left += !stream_is_done(&look, &tables->streams[i]);
    for (uint32_t i = 0; i < used && look.left == 0; i++)
        if (use_context(&look, contexts[i].generation) == WORD_ASK &&
            !streams_blocking_captures(contexts[i].generation))
            look.left +=
                !is_done(&look, contexts[i].generation, cuda->stream_query(DRIVER_STREAM_LEGACY));
    end_look(&look);
    lock_release(LOCK_STREAMS);
    note_failures(&look);
    return look.left > 0;
}
