#include "gate/window.h"

#include <string.h>

#include "base/clock.h"
#include "base/driver.h"
#include "base/hold.h"
#include "base/uncancelled.h"
#include "device/contexts.h"
#include "device/streams.h"
#include "gate/gate_control.h"
#include "gate/gate_mark.h"

static _Atomic uint64_t window_ns = 20 * 1000000u;
static _Atomic uint64_t stall_ns = 200 * 1000000u;
static _Atomic bool window_active;
static _Atomic uint32_t turn_epoch = 1;

#define SPIN_NS 50000u /* shorter waits are not worth going to sleep for */
#define SLEEP_NS_MIN 20000u
/* Behind a long launch the rest of what is in flight may be short: a training step's optimiser
 * leaves some 0.3 ms of it, and who sleeps longer than that lets the device run dry. */
#define SLEEP_NS_MAX 50000u
/* From then on a long launch is more likely than one that waits for so many others. */
#define WAIVERS_QUICK 100u
/* What was learned never is as much as the driver queues: then no launch would be held any more. */
#define LET_GO_MOST 256u

void window_configure(uint32_t window_ms, uint32_t stall_ms) {
    atomic_store(&window_ns, (uint64_t)window_ms * 1000000u);
    atomic_store(&stall_ns, (uint64_t)stall_ms * 1000000u);
}

void window_set_active(bool active) {
    atomic_store(&window_active, active);
}

void window_turn_drained(void) {
    atomic_fetch_add(&turn_epoch, 1);
}

/* Which of the three kinds a caller's handle means. Default streams get their explicit handle, so
 * that our calls mean the same stream whatever variant they are made through. */
static enum window_stream_kind kind_of(const struct gate_call *call, void **stream) {
    *stream = gate_stream(call->stream, call->variant);
    if (*stream == DRIVER_STREAM_PER_THREAD) return WINDOW_STREAM_PER_THREAD;
    if (call->stream == NULL || call->stream == DRIVER_STREAM_LEGACY) {
        *stream = DRIVER_STREAM_LEGACY;
        return WINDOW_STREAM_LEGACY;
    }
    return WINDOW_STREAM_CREATED;
}

/* Events go back to the table; those of the thread's own default stream may still be needed. */
static void release_events(struct window_ring *ring) {
    bool alive = contexts_generation(ring->context) == ring->context_number;
    bool needed = ring->kind == WINDOW_STREAM_PER_THREAD &&
                  ring->turn_epoch == atomic_load(&turn_epoch) && ring->under_way > 0;
    uint32_t newest = (ring->oldest + ring->under_way + WINDOW_EVENTS - 1) % WINDOW_EVENTS;
    for (uint32_t i = 0; i < WINDOW_EVENTS && alive; i++)
        if (ring->events[i])
            streams_adopt_event(ring->context_number, ring->events[i], needed && i == newest);
    memset(ring, 0, sizeof(*ring));
}

/* The ring is about the stream that has this handle now. One that has gone took the events with
 * its context, or leaves them to be used again. Only our own table is asked: the program may have
 * destroyed the ring's stream, and the driver crashes on a handle of the past. */
static bool still_valid(struct window_ring *ring, uint32_t epoch) {
    if (ring->streams_epoch == epoch) return true;
    void *context = ring->context;
    uint64_t stream_number = 0;
    if (ring->kind == WINDOW_STREAM_CREATED)
        stream_number = streams_known_number(ring->stream, &context);
    uint64_t context_number = contexts_generation(context);
    if (context_number != ring->context_number || stream_number != ring->stream_number)
        return false;
    ring->streams_epoch = epoch;
    return true;
}

static bool fill(struct window_ring *ring, enum window_stream_kind kind, void *stream,
                 void *context, uint32_t epoch) {
    const bool is_created = kind == WINDOW_STREAM_CREATED;
    const uint64_t stream_number = is_created ? streams_number(stream, &context) : 0;
    if (is_created ? stream_number == 0 : !contexts_know(context)) return false;
    uint64_t context_number = contexts_generation(context);
    if (context_number == 0) return false;
    *ring = (struct window_ring){
        .stream = stream,
        .context = context,
        .kind = kind,
        .streams_epoch = epoch,
        .stream_number = stream_number,
        .context_number = context_number,
    };
    window_pace_start(&ring->pace);
    return true;
}

/* A new turn begins with an empty window, and cautiously: what it launches may be of another kind
 * than what the last one did. */
static void begin_turn(struct window_ring *ring, uint32_t turn) {
    ring->turn_epoch = turn;
    ring->under_way = 0;
    ring->uncovered = 0;
    ring->is_refused = false;
    ring->waived = false;
    ring->waivers = 0;
    ring->let_go = ring->let_go_done = 0;
    ring->done_seen_ns = 0;
    ring->pending_ns = 0;
    window_pace_start(&ring->pace);
}

/* Which context a default stream belongs to now. The driver is asked once for a group of launches;
 * the thread's calls that switch contexts clear what is remembered, and so does every event, in
 * case it was switched by a way that no wrapper sees. */
static CUcontext current_context(struct thread_record *thread, const struct driver *cuda) {
    CUcontext context = thread->current_context;
    if (context) return context;
    if (cuda->context_get_current(&context) != CUDA_SUCCESS) return NULL;
    thread->current_context = context;
    return context;
}

/* Holds that ended in vain, in all threads. What ends after one may have waited for the thread that
 * was held, so how long it took is no measure. */
static _Atomic uint32_t stalls;

void window_gate_shuts(void) {
    atomic_fetch_add(&stalls, 1);
}

/* How long a launch is held up by an event that does not come. The work ahead may itself wait for a
 * call that this thread makes later: the next launches are held up ever shorter, a hundred of them
 * for a second together. But it may as well be a long queue from before the window began, which has
 * to get shorter. */
static uint64_t patience_ns(const struct window_ring *ring) {
    const bool is_long = gate_was_unbounded() || ring->waivers >= WAIVERS_QUICK;
    const uint64_t least_ns = is_long ? atomic_load(&window_ns) : 0;
    uint64_t most_ns = atomic_load(&stall_ns);
    if (most_ns < 4 * ring->pace.group_ns_max) most_ns = 4 * ring->pace.group_ns_max;
    const uint64_t patience = most_ns / (ring->waivers + 1);
    return patience < least_ns ? least_ns : patience;
}

/* The ring's context while its stream is there too. Called with LOCK_STREAMS held. */
static const struct context *living_context(const struct window_ring *ring) {
    const bool is_gone = ring->stream_number != 0 && !streams_find_number(ring->stream_number);
    return is_gone ? NULL : contexts_find(ring->context_number);
}

/* Nothing has gone since the ring was looked up, nothing is about to, and nothing captures. What
 * leaves counts the epoch up before it has left, so that is read last. */
static bool is_as_it_was(const struct window_ring *ring) {
    return atomic_load(&contexts_leaving) == 0 && !streams_capture_anywhere() &&
           ring->streams_epoch == atomic_load(&streams_epoch);
}

static CUresult ask_oldest(const struct driver *cuda, const struct window_ring *ring) {
    return ring->is_refused ? cuda->stream_query(ring->stream)
                            : driver_query_event(cuda, ring->events[ring->oldest]);
}

static CUresult look_and_ask(const struct driver *cuda, const struct window_ring *ring) {
    HOLD(LOCK_STREAMS);
    const struct context *context = living_context(ring);
    const bool may_not = ring->is_refused && atomic_load(&streams_captures) > 0;
    if (context == NULL || may_not) return CUDA_ERROR_INVALID_CONTEXT;
    return context->leaving > 0 ? CUDA_ERROR_NOT_READY : ask_oldest(cuda, ring);
}

/* The same outside the gate, where the ring's context may end: it may be another stream's than the
 * call's. Events end with their context, and the driver crashes on one that has ended. Where the
 * event was refused, the call's stream is asked, but not while anything captures. */
static CUresult query_outside(const struct driver *cuda, const struct window_ring *ring) {
    SIGNALS_WAIT();
    UNCANCELLED();
    const uint32_t place = streams_use_begins(ring->context_number);
    const CUresult result = is_as_it_was(ring) ? ask_oldest(cuda, ring) : look_and_ask(cuda, ring);
    streams_recording_ends(place);
    return result;
}

/* Waits, outside the gate, until the oldest event is done, patience is over, or the gate is shut,
 * where the call waits on as any other. False, for it has to look at the gate again. */
static bool wait_for_oldest(struct thread_record *thread, struct window_ring *ring,
                            const struct driver *cuda) {
    gate_mark_outside(thread);
    const uint32_t stalls_before = atomic_load(&stalls);
    uint64_t started_ns = clock_now_ns();
    uint64_t until_ns = started_ns + patience_ns(ring);
    /* A sleep is short against a group, so that neither the device runs dry nor the group seems to
     * have lasted as long as the sleep. */
    uint64_t sleep_ns = ring->pace.group_ns_max / 8;
    if (sleep_ns < SLEEP_NS_MIN) sleep_ns = SLEEP_NS_MIN;
    if (sleep_ns > SLEEP_NS_MAX) sleep_ns = SLEEP_NS_MAX;
    while (query_outside(cuda, ring) == CUDA_ERROR_NOT_READY) {
        ring->pending_ns = clock_now_ns();
        /* A drain that stalls opens the gate again, and a recall may come sooner each time than
         * patience is over: then a hold would never end. */
        if (atomic_load(&gate_word) == GATE_SHUT || ring->pending_ns > until_ns) {
            ring->waived = true;
            ring->waivers++;
            /* One launch a hold: what goes on may be as long as what is waited for. */
            ring->pace.launches_per_event = 1;
            ring->pace.groups_quick = 0;
            atomic_fetch_add(&stalls, 1);
            return false;
        }
        if (ring->pending_ns - started_ns < SPIN_NS) continue;
        clock_sleep_ns(sleep_ns);
    }
    ring->done_seen_ns = clock_now_ns();
    /* It came while this thread was held, so it did not wait for it; nor for another one. */
    if (atomic_load(&stalls) == stalls_before) ring->group_stalls[ring->oldest] = stalls_before;
    return false;
}

static uint32_t let_go_now(const struct window_ring *ring) {
    return ring->let_go - ring->let_go_done;
}

/* The oldest groups are done. None can have begun before it was launched, nor before the group
 * ahead was done: the later of the two bounds how long they took together, one after the other. */
static void retire(struct window_ring *ring, uint32_t groups) {
    const bool was_held = ring->done_seen_ns != 0;
    uint64_t done_ns = ring->done_seen_ns ? ring->done_seen_ns : clock_now_ns();
    uint64_t launched_ns = ring->group_started_ns[ring->oldest];
    uint64_t began_ns =
        launched_ns > ring->ahead_done_ns_min ? launched_ns : ring->ahead_done_ns_min;
    uint64_t group_ns = done_ns > began_ns ? (done_ns - began_ns) / groups : 0;
    launched_ns = ring->group_started_ns[(ring->oldest + groups - 1) % WINDOW_EVENTS];
    ring->ahead_done_ns_min = ring->pending_ns > launched_ns ? ring->pending_ns : launched_ns;
    ring->pending_ns = 0;
    ring->done_seen_ns = 0;
    const uint64_t most_ns = atomic_load_explicit(&window_ns, memory_order_relaxed);
    const bool is_measured = ring->group_stalls[ring->oldest] == atomic_load(&stalls);
    /* It waited for launches that were held up: as many go at once from now on. */
    if (!is_measured && ring->waivers > 0 && ring->let_go_max < 2 * let_go_now(ring))
        ring->let_go_max = 2 * let_go_now(ring);
    if (ring->let_go_max > LET_GO_MOST) ring->let_go_max = LET_GO_MOST;
    if (was_held) ring->let_go_max /= 2;
    ring->let_go_done = ring->group_let_go[(ring->oldest + groups - 1) % WINDOW_EVENTS];
    ring->oldest = (ring->oldest + groups) % WINDOW_EVENTS;
    ring->under_way -= groups;
    ring->waived = false;
    ring->waivers = 0;
    for (; is_measured && groups > 0; groups--)
        window_pace_measured(&ring->pace, group_ns, most_ns);
}

/* How many of the oldest groups are done, as far as that is worth asking. */
static uint32_t groups_done(struct window_ring *ring, const struct driver *cuda) {
    if (ring->done_seen_ns) return 1;
    uint32_t groups = window_pace_ask(&ring->pace, ring->under_way);
    uint32_t newest = (ring->oldest + groups - 1) % WINDOW_EVENTS;
    if (driver_query_event(cuda, ring->events[newest]) != CUDA_ERROR_NOT_READY) return groups;
    if (groups == 1) return 0;
    window_pace_behind(&ring->pace);
    return driver_query_event(cuda, ring->events[ring->oldest]) != CUDA_ERROR_NOT_READY ? 1 : 0;
}

/* The place of the stream's ring: where it is, else where it can be, else that of another stream.
 */
static struct window_ring *place_for(struct thread_record *thread, enum window_stream_kind kind,
                                     void *stream, CUcontext context) {
    uintptr_t hash = (uintptr_t)stream ^ ((uintptr_t)stream >> 4) ^ ((uintptr_t)context >> 4);
    uintptr_t home = hash ^ (hash >> 8);
    struct window_ring *unused = NULL;
    for (uintptr_t i = 0; i < WINDOW_RINGS; i++) {
        struct window_ring *ring = &thread->rings[(home + i) % WINDOW_RINGS];
        if (ring->stream == stream &&
            (kind == WINDOW_STREAM_CREATED || ring->context == (void *)context))
            return ring;
        if (ring->stream == NULL && unused == NULL) unused = ring;
    }
    return unused ? unused : &thread->rings[home % WINDOW_RINGS];
}

/* The same for a stream that is not the call's own: its context may end meanwhile. */
static uint32_t groups_of_other_done(struct window_ring *ring, const struct driver *cuda) {
    HOLD(LOCK_STREAMS);
    const struct context *context = contexts_find(ring->context_number);
    if (context == NULL) return ring->under_way;
    return context->leaving > 0 ? 0 : groups_done(ring, cuda);
}

/* What another stream has under way is waited for before its ring goes, or nothing would bound it.
 */
static bool makes_way(struct thread_record *thread, struct window_ring *ring,
                      const struct driver *cuda, uint32_t turn) {
    const bool can_ask = !ring->is_refused || ring->kind == WINDOW_STREAM_CREATED;
    const bool waits = !ring->waived && can_ask && let_go_now(ring) >= ring->let_go_max;
    if (ring->turn_epoch == turn && ring->is_refused && waits && ring->done_seen_ns == 0)
        return wait_for_oldest(thread, ring, cuda);
    while (ring->turn_epoch == turn && ring->under_way > 0 && waits) {
        uint32_t done = groups_of_other_done(ring, cuda);
        if (done == 0) return wait_for_oldest(thread, ring, cuda);
        retire(ring, done);
    }
    return true;
}

/* The thread's ring for the call's stream; NULL when the stream cannot be told. False: it has
 * waited outside the gate. */
static bool find_ring(struct thread_record *thread, const struct driver *cuda,
                      const struct gate_call *call, struct window_ring **found) {
    void *stream;
    *found = NULL;
    enum window_stream_kind kind = kind_of(call, &stream);
    CUcontext context = kind == WINDOW_STREAM_CREATED ? NULL : current_context(thread, cuda);
    struct window_ring *ring = place_for(thread, kind, stream, context);
    uint32_t epoch = atomic_load_explicit(&streams_epoch, memory_order_acquire);
    uint32_t turn = atomic_load_explicit(&turn_epoch, memory_order_acquire);
    bool ours = ring->stream == stream &&
                (kind == WINDOW_STREAM_CREATED || ring->context == (void *)context);
    if (!ours || !still_valid(ring, epoch)) {
        if (!ours && ring->stream && still_valid(ring, epoch) &&
            !makes_way(thread, ring, cuda, turn))
            return false;
        if (ring->stream) release_events(ring);
        if (!fill(ring, kind, stream, context, epoch)) {
            thread->current_context = NULL;
            return true;
        }
    }
    if (ring->turn_epoch != turn) begin_turn(ring, turn);
    *found = ring;
    return true;
}

bool window_admit(struct thread_record *thread, const struct gate_call *call) {
    thread->counting = NULL;
    if (call->kind != GATE_LAUNCH && call->kind != GATE_SYNC) return true;
    const struct driver *cuda = driver_get();
    if (cuda == NULL || !atomic_load_explicit(&window_active, memory_order_relaxed)) return true;
    struct window_ring *ring;
    if (!find_ring(thread, cuda, call, &ring)) return false;
    if (ring == NULL || streams_is_capturing(ring->stream)) return true;
    if (ring->is_refused && !ring->waived && ring->uncovered > ring->let_go_max) {
        if (ring->done_seen_ns == 0) return wait_for_oldest(thread, ring, cuda);
        const uint32_t most = ring->waivers > 0 ? 2 * ring->uncovered : ring->let_go_max / 2;
        ring->let_go_max = most < LET_GO_MOST ? most : LET_GO_MOST;
        begin_turn(ring, ring->turn_epoch);
    }

    while (ring->under_way >= ring->pace.depth && ring->uncovered == 0) {
        uint32_t done = groups_done(ring, cuda);
        if (done == 0 && (ring->waived || let_go_now(ring) < ring->let_go_max)) {
            ring->let_go++;
            break;
        }
        if (done == 0) return wait_for_oldest(thread, ring, cuda);
        retire(ring, done);
        if (!window_pace_is_one_at_a_time(&ring->pace)) break;
    }
    if (ring->uncovered == 0) ring->next_group_started_ns = clock_now_ns();
    thread->counting = ring;
    return true;
}

bool window_joins(const struct thread_record *thread, const void *stream,
                  enum gate_stream_variant variant) {
    const struct window_ring *ring = thread->group;
    bool same = streams_is_created(stream) ? ring->stream == stream
                                           : stream == NULL && variant == GATE_STREAM_LEGACY &&
                                                 ring->kind == WINDOW_STREAM_LEGACY &&
                                                 ring->context == thread->current_context;
    return same && ring->uncovered > 0 && !ring->is_refused &&
           ring->streams_epoch == atomic_load_explicit(&streams_epoch, memory_order_acquire) &&
           ring->turn_epoch == atomic_load_explicit(&turn_epoch, memory_order_acquire) &&
           atomic_load_explicit(&streams_captures, memory_order_relaxed) == 0;
}

static void *make_event(const struct driver *cuda, const struct window_ring *ring) {
    CUevent event = streams_spare_event(ring->context_number);
    if (event) return event;
    CUcontext current = NULL;
    cuda->context_get_current(&current);
    bool elsewhere = current != (CUcontext)ring->context;
    if (elsewhere && cuda->context_push(ring->context) != CUDA_SUCCESS) return NULL;
    if (cuda->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) event = NULL;
    if (elsewhere) cuda->context_pop(&current);
    return event;
}

/* The ring's stream and context are still there, and the event would disturb no capture. */
static bool may_record(const struct window_ring *ring) {
    if (is_as_it_was(ring)) return true;
    HOLD(LOCK_STREAMS);
    const struct context *context = living_context(ring);
    if (context == NULL || context->leaving > 0) return false;
    if (ring->kind == WINDOW_STREAM_CREATED) return streams_find_capture(ring->stream) == NULL;
    return ring->kind != WINDOW_STREAM_LEGACY || !streams_capture_anywhere();
}

/* The driver has done the program's call: whoever has heard that from the device may destroy the
 * stream or its context now, or begin to capture. It waits until we have recorded, or we see that
 * it has begun. Nobody waits for a lock here: who has it may wait for this thread's next call. */
static bool record_in(struct window_ring *ring, const struct driver *cuda, void **event) {
    UNCANCELLED();
    const uint32_t place = streams_use_begins(ring->context_number);
    const bool may = may_record(ring);
    if (may && *event == NULL) *event = make_event(cuda, ring);
    if (may)
        ring->is_refused =
            *event == NULL || cuda->event_record(*event, ring->stream) != CUDA_SUCCESS;
    streams_recording_ends(place);
    return may;
}

/* Records the event that covers the launches since the last one. A full ring moves its newest. */
static void record(struct window_ring *ring, const struct driver *cuda) {
    bool full = ring->under_way == WINDOW_EVENTS;
    uint32_t slot = (ring->oldest + ring->under_way - (full ? 1 : 0)) % WINDOW_EVENTS;
    if (!record_in(ring, cuda, &ring->events[slot])) return;
    ring->waived = false;
    if (ring->is_refused) return;
    ring->group_let_go[slot] = ring->let_go;
    ring->group_stalls[slot] = atomic_load_explicit(&stalls, memory_order_relaxed);
    if (!full) {
        ring->group_started_ns[slot] = ring->next_group_started_ns;
        ring->under_way++;
    }
    ring->uncovered = 0;
}

void window_launched(struct thread_record *thread, struct window_ring *ring) {
    ring->uncovered++;
    thread->group = ring;
    bool capture = atomic_load_explicit(&streams_captures, memory_order_relaxed) > 0;
    /* Only this thread can record in its default stream, and after the gate is shut nobody could:
     * there every launch gets its event. So it does during captures, when the drain cannot add
     * one; except on the legacy stream, where recording would break the capture. */
    if (capture ? ring->kind == WINDOW_STREAM_LEGACY
                : ring->kind != WINDOW_STREAM_PER_THREAD &&
                      ring->uncovered < ring->pace.launches_per_event)
        return;
    const struct driver *cuda = driver_get();
    if (cuda) record(ring, cuda);
    thread->current_context = NULL;
}

bool window_last_event(const struct window_ring *ring, void **event) {
    if (ring->stream == NULL || ring->turn_epoch != atomic_load(&turn_epoch)) return false;
    if (ring->uncovered > 0 || ring->under_way == 0) return false;
    *event = ring->events[(ring->oldest + ring->under_way + WINDOW_EVENTS - 1) % WINDOW_EVENTS];
    return true;
}

void window_thread_ends(struct thread_record *thread) {
    for (int i = 0; i < WINDOW_RINGS; i++)
        if (thread->rings[i].stream) release_events(&thread->rings[i]);
}
