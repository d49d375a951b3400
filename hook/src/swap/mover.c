#include "swap/mover.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "memory/chunks.h"
#include "memory/graph_memory.h"
#include "memory/registry.h"
#include "swap/copy_pipeline.h"
#include "swap/mover_host.h"
#include "swap/mover_steps.h"
#include "swap/mover_waits.h"
#include "swap/residency.h"
#include "swap/swap_plan.h"
#include "swap/wholes.h"

#define POLL_NS 50000u
#define LATE_WHOLE_NS 1000000u
#define LATE_WHOLE_NS_MAX 2000000000u
#define FORGET_LOOK_NS 200000000u
#define REPORT_BYTES ((uint64_t)64 << 20)
#define REPORT_NS 2000000u
#define NEVER MOVER_HOST_NEVER

/* ---- what other threads see -------------------------------------------------------------------
 */

/* Guarded by LOCK_MEMORY; who has freed memory looks at the goal and at the thread without it. */
static _Atomic enum mover_goal goal;
static uint32_t goal_number;    /* counts the changes */
static bool started;            /* the thread was asked for */
static _Atomic bool has_thread; /* and could be started */
static void *leaving_context;   /* mover_forget_context waits for it; guarded by LOCK_MEMORY */
static _Atomic uint32_t word;   /* the mover sleeps on it */
static _Atomic uint32_t left;   /* contexts that it has left; mover_forget_context sleeps on it */
static uint32_t gave_up; /* the number of the goal that was given up; guarded by LOCK_MEMORY */

static void wake(void) {
    atomic_fetch_add(&word, 1);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void sleep_on(_Atomic uint32_t *what, uint32_t seen, uint64_t ns) {
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, what, FUTEX_WAIT_PRIVATE, seen, ns == NEVER ? NULL : &pause, NULL, 0);
}

enum step_answer mover_claim(enum mover_goal wanted, struct chunk *(*claim_locked)(int device),
                             int device, struct chunk **claimed) {
    enum step_answer answer = STEP_NEW_GOAL;
    HOLD(LOCK_MEMORY);
    if (goal == wanted) {
        *claimed = claim_locked(device);
        answer = *claimed != NULL ? STEP_DONE : STEP_NO_CHUNK;
    }
    return answer;
}

struct physical *mover_claim_whole(bool *later) {
    *later = false;
    HOLD(LOCK_MEMORY);
    return goal == MOVER_RESTORE ? physical_whole_begin_locked(later) : NULL;
}

bool mover_can_run(void) {
    HOLD(LOCK_MEMORY);
    return has_thread || !started;
}

bool mover_restores(void) {
    HOLD(LOCK_MEMORY);
    return goal == MOVER_RESTORE;
}

bool mover_gave_up(void) {
    HOLD(LOCK_MEMORY);
    return goal == MOVER_RESTORE && gave_up == goal_number;
}

/* ---- the mover's own --------------------------------------------------------------------------
 */

/* Bytes that went one way in one go, for the log. */
struct burst {
    uint64_t bytes, began_ns;
    uint32_t chunks;
};

static struct {
    enum mover_goal goal; /* as seen at the beginning of this round */
    uint32_t goal_number;
    bool has_failed;
    bool told_restored;
    bool has_answers;             /* for those that wait for memory to be one allocation */
    uint64_t whole_late_since_ns; /* one is to be made that a call still uses; 0: none */
    uint64_t trimmed;             /* devices whose graphs were, for this goal */
    uint32_t first;               /* which of the devices comes first, likewise */
    struct burst out, in, copied;
    uint64_t unreported_bytes, reported_at_ns;
} state;

static void report(bool at_once) {
    const uint64_t now_ns = clock_now_ns();
    if (!at_once && state.unreported_bytes < REPORT_BYTES &&
        now_ns - state.reported_at_ns < REPORT_NS)
        return;
    state.unreported_bytes = 0;
    state.reported_at_ns = now_ns;
    bell_ring(NEWS_MEMORY_MOVED);
}

/* A chunk has moved, or counts as fixed for a while: that is to be told. */
static void changed(uint64_t bytes) {
    state.unreported_bytes += bytes;
    report(false);
}

/* To be told when the mover rests. */
static void note(struct burst *burst, uint64_t bytes) {
    burst->bytes += bytes;
    burst->chunks++;
    state.unreported_bytes += bytes;
}

static void moved(struct burst *burst, uint64_t bytes) {
    note(burst, bytes);
    report(false);
}

static void begin_burst(struct burst *burst) {
    if (burst->began_ns == 0) burst->began_ns = clock_now_ns();
}

static void end_burst(struct burst *burst, const char *name) {
    if (burst->bytes > 0) {
        const double ns = (double)(clock_now_ns() - burst->began_ns);
        log_debug("%s: %llu bytes in %u chunks, %.3f ms, %.2f GB/s", name,
                  (unsigned long long)burst->bytes, burst->chunks, ns / 1e6,
                  (double)burst->bytes / ns);
    }
    *burst = (struct burst){0};
}

static void fail(void) {
    state.has_failed = true;
    mover_waits_end_room();
}

/* Nobody makes room for what comes back ahead of its turn. */
static void ask_for_room(int device, uint64_t bytes) {
    if (state.goal == MOVER_PARK || !mover_waits_for_room(device, bytes)) fail();
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static struct swap_view view_of(int device) {
    return (struct swap_view){
        .goal = state.goal,
        .flights = pipeline_flights(),
        .flight_bytes = pipeline_bytes(),
        .leaving_bytes = pipeline_leaving_bytes(device),
        .bytes_over = residency_bytes_over(device),
        .bytes_free = residency_bytes_free(device),
        .bytes_to_copy = residency_bytes_to_copy(device),
        .chunks = chunks_sums_of(device),
        .arrives = pipeline_has_arrivals(device),
        .comes_ahead = residency_comes_ahead(device),
        .all_here = chunks_all_here(),
        .host_is_short = mover_host_is_short(),
        .host_is_tight =
            state.goal == MOVER_RESTORE ? mover_host_is_tight() : mover_host_ends_copies(device),
        .stream_is_short = mover_waits_streams_are_short(),
        .room_is_short = mover_waits_room_is_short(),
        .has_failed =
            state.has_failed || (state.goal == MOVER_PARK && residency_why_it_stays() != NULL),
    };
}

/* A device for whose next chunk something lacks lets the others go ahead: for theirs it may not. */
static void leave(int device, uint64_t bytes_to_leave) {
    uint64_t bytes = 0;
    begin_burst(&state.out);
    const enum step_answer answer = step_leave(device, &bytes);
    if (answer == STEP_NO_HOST) mover_host_want(device, bytes, bytes_to_leave);
    if (answer == STEP_NO_SYSTEM) mover_host_lacks();
    if (answer == STEP_FAILED) changed(bytes);
    if (answer == STEP_NO_ROOM) mover_waits_for_streams();
    if (answer == STEP_DONE) mover_waits_end_streams();
    state.first += answer == STEP_NO_HOST || answer == STEP_NO_SYSTEM || answer == STEP_NO_ROOM;
}

/* It is in no hurry, so what lacks for it ends it. */
static void copy(int device) {
    uint64_t bytes = 0;
    begin_burst(&state.copied);
    const enum step_answer answer = step_copy(device, &bytes);
    if (answer == STEP_NO_HOST || answer == STEP_NO_ROOM) residency_cannot_copy(device);
    if (answer != STEP_DONE) state.unreported_bytes += bytes;
}

static void come(int device) {
    uint64_t bytes = 0;
    begin_burst(&state.in);
    const enum step_answer answer = step_come(device, state.goal, &bytes);
    if (answer == STEP_NO_ROOM) ask_for_room(device, bytes);
    /* One that is lost with its context needs no room either. */
    if (answer == STEP_DONE || (answer == STEP_NO_CHUNK && bytes > 0)) mover_waits_end_room();
    if (answer != STEP_DONE) changed(bytes); /* for a moment it has counted as there */
    if (answer == STEP_FAILED) fail();
}

static void unmap(int device) {
    uint64_t bytes = 0;
    const enum step_answer answer = step_unmap(device, state.goal, &bytes);
    if (answer == STEP_DONE) moved(&state.out, bytes);
    if (answer == STEP_FAILED) changed(bytes);
}

static void give_up(void) {
    lock_take(LOCK_MEMORY);
    const bool is_news = gave_up != state.goal_number;
    gave_up = state.goal_number;
    lock_release(LOCK_MEMORY);
    if (!is_news) return;
    end_burst(&state.out, "rolled back");
    report(true);
}

static enum swap_step take_step(int device) {
    const struct swap_view view = view_of(device);
    const enum swap_step step = swap_plan(&view);
    switch (step) {
        case SWAP_LEAVE:
            leave(device, view.bytes_over - view.leaving_bytes);
            break;
        case SWAP_COPY:
            copy(device);
            break;
        case SWAP_COME:
            come(device);
            break;
        case SWAP_UNMAP:
        case SWAP_ROLL_BACK:
            begin_burst(&state.out);
            unmap(device);
            break;
        case SWAP_CONFIRM:
            mover_host_confirm(device, state.goal == MOVER_PARK);
            if (state.goal == MOVER_PARK) report(true); /* it leaves with a copy again */
            break;
        case SWAP_GIVE_UP:
        case SWAP_NOTHING:
        case SWAP_WAIT:
            break;
    }
    return step;
}

/* When its step is done, a chunk may be gone: a thread has waited to free it. */
static void finish_copies(void) {
    struct flight ended;
    int cu_result;
    while (pipeline_take_ended(&ended, &cu_result)) {
        const uint64_t bytes = ended.chunk->bytes;
        const int device = ended.chunk->device;
        const enum step_answer answer = step_finish(&ended, cu_result, state.goal);
        if (answer == STEP_COPIED) {
            note(&state.copied, bytes);
            continue;
        }
        if (answer == STEP_DONE) moved(ended.outward ? &state.out : &state.in, bytes);
        if (answer != STEP_DONE) changed(bytes);
        if (answer == STEP_FAILED && !ended.outward) fail();
        if (answer == STEP_NO_ROOM) ask_for_room(device, bytes);
    }
}

/* Its last context has ended without the turn: the wait for it was cancelled. */
static void lose_without_context(void) {
    for (int device = 0; device < REGISTRY_DEVICES_MAX && state.goal == MOVER_RESTORE; device++)
        if (step_lose(device))
            log_info("GPU memory is lost: the last context of device %d ended while it was parked.",
                     device);
}

/* What graphs keep goes before anything is copied. The gate is shut, so none runs. */
static void trim_graphs(void) {
    if (!atomic_load(&graph_memory_is_used)) return;
    for (int device = 0; device < REGISTRY_DEVICES_MAX && state.goal == MOVER_PARK; device++) {
        const uint64_t bit = (uint64_t)1 << device;
        if ((state.trimmed & bit) != 0 || atomic_load(&contexts_leaving) > 0 ||
            residency_bytes_over(device) == 0)
            continue;
        state.trimmed |= bit;
        if (graph_memory_trim(device)) report(true);
    }
}

/* When all is back, before the gate opens. What could not be made is parked then, and comes back as
 * it was. */
static bool make_whole(void) {
    bool late = false;
    if (state.goal != MOVER_RESTORE || state.has_failed || !physical_whole_wanted() ||
        !chunks_all_here() || pipeline_flights() > 0 || atomic_load(&contexts_leaving) > 0)
        return false;
    state.told_restored = false;
    const bool made = wholes_step(&late);
    state.has_answers = true;
    const uint64_t now_ns = clock_now_ns();
    if (!late || made)
        state.whole_late_since_ns = 0;
    else if (state.whole_late_since_ns == 0)
        state.whole_late_since_ns = now_ns;
    else if (now_ns - state.whole_late_since_ns > LATE_WHOLE_NS_MAX)
        wholes_refuse();
    return made;
}

/* Takes steps until there is nothing to do but wait. */
static void step_devices(void) {
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    bool further = true, gives_up = false;
    lose_without_context();
    trim_graphs();
    while (further) {
        further = false;
        gives_up = count > 0 && atomic_load(&contexts_leaving) == 0;
        finish_copies();
        /* While a context leaves nothing begins, for none may be touched. */
        const uint32_t first = state.first;
        for (int i = 0; i < count && atomic_load(&contexts_leaving) == 0; i++) {
            const int device = ordinals[(first + (uint32_t)i) % (uint32_t)count];
            if (device >= REGISTRY_DEVICES_MAX) continue;
            const enum swap_step step = take_step(device);
            further |= step != SWAP_NOTHING && step != SWAP_WAIT && step != SWAP_GIVE_UP;
            gives_up = gives_up && step == SWAP_GIVE_UP;
        }
        further = further || make_whole();
        lock_take(LOCK_MEMORY);
        further &= goal_number == state.goal_number && !leaving_context && !ending_has_begun();
        lock_release(LOCK_MEMORY);
    }
    if (gives_up) give_up();
}

/* ---- contexts ---------------------------------------------------------------------------------
 */

static void leave_context(void) {
    lock_take(LOCK_MEMORY);
    void *context = leaving_context;
    lock_release(LOCK_MEMORY);
    /* Copies of other contexts too: the host memory may be registered in the one that leaves. */
    if (context == NULL || pipeline_flights() > 0) return;
    pipeline_forget_context(context);
    lock_take(LOCK_MEMORY);
    leaving_context = NULL;
    lock_release(LOCK_MEMORY);
    atomic_fetch_add(&left, 1);
    syscall(SYS_futex, &left, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void see_goal(void) {
    lock_take(LOCK_MEMORY);
    const bool changed = state.goal_number != goal_number;
    state.goal = goal;
    state.goal_number = goal_number;
    lock_release(LOCK_MEMORY);
    if (!changed) return;
    mover_waits_end();
    state.has_failed = state.told_restored = false;
    state.whole_late_since_ns = 0;
    state.trimmed = 0;
    state.first = 0;
    mover_host_goal_changed();
}

static uint64_t pause_ns(void) {
    if (pipeline_flights() > 0 || atomic_load(&contexts_leaving) > 0) return POLL_NS;
    if (state.whole_late_since_ns != 0 && physical_whole_wanted()) return LATE_WHOLE_NS;
    uint64_t ns = mover_host_pause_ns(state.goal);
    const uint64_t go_at_ns = chunks_next_let_go_ns(), now_ns = clock_now_ns();
    const uint64_t go_ns = go_at_ns > now_ns ? go_at_ns - now_ns : POLL_NS;
    if (go_at_ns != UINT64_MAX && go_ns < ns) ns = go_ns;
    const uint64_t waits_ns = mover_waits_pause_ns();
    return waits_ns < ns ? waits_ns : ns;
}

/* Others wait for it, and not for what becomes of host memory then. Whatever has brought all back:
 * what was on its way out may just have stayed. */
static void tell(void) {
    const bool restored = state.goal == MOVER_RESTORE && !state.told_restored &&
                          chunks_all_confirmed() && !physical_whole_wanted();
    if (restored) end_burst(&state.in, "restored");
    state.told_restored |= restored;
    if (restored || (pipeline_flights() == 0 && state.unreported_bytes > 0)) report(true);
}

static void rest(uint32_t seen) {
    const uint64_t ns = pause_ns();
    if (state.has_answers) wait_wake_all();
    state.has_answers = false;
    if (pipeline_flights() == 0) {
        end_burst(&state.out, state.goal == MOVER_PARK ? "parked" : "left");
        if (state.goal != MOVER_RESTORE) end_burst(&state.in, "came");
        end_burst(&state.copied, "copied ahead of need");
    }
    sleep_on(&word, seen, ns);
}

static void *run(void *nothing) {
    pthread_setname_np(pthread_self(), "gpushare-mem");
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    if (ending_driver_use_begin()) {
        driver_relaxed_begin(driver_get()); /* for good: captures of other threads go on */
        ending_driver_use_end();
    }
    for (;;) {
        const uint32_t seen = atomic_load(&word);
        see_goal();
        if (!ending_driver_use_begin()) {
            sleep_on(&word, seen, NEVER); /* the process ends */
            continue;
        }
        leave_context();
        if (chunks_let_go(clock_now_ns())) report(true);
        /* While the turn is held: when memory has to leave, the device may be full. */
        if (state.goal == MOVER_REST && residency_park_hint() > 0) mover_waits_open_streams();
        step_devices();
        tell();
        ending_driver_use_end();
        switch (mover_host_look(state.goal)) {
            case MOVER_HOST_MORE:
                break;
            case MOVER_HOST_SHORT:
                report(true);
                bell_ring(NEWS_HOST_SHORT); /* how much room there is after all */
                rest(seen);
                break;
            case MOVER_HOST_DONE:
                rest(seen);
                break;
        }
    }
    return nothing;
}

/* Whether there is anything for the mover to do: a hand-over without memory wakes nobody. */
static bool has_work(enum mover_goal wanted) {
    if (wanted == MOVER_RESTORE) return true;
    if (residency_park_hint() > 0 || !chunks_all_confirmed()) return true;
    if (wanted != MOVER_PARK) return false;
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    for (int i = 0; i < count; i++)
        if (residency_bytes_over(ordinals[i]) > 0 &&
            (chunks_sums_of(ordinals[i]).bytes_movable > 0 ||
             graph_memory_counted(ordinals[i]) > 0))
            return true;
    return false;
}

void mover_look(void) {
    lock_take(LOCK_MEMORY);
    const enum mover_goal wanted = goal;
    lock_release(LOCK_MEMORY);
    if (!has_work(wanted)) return;
    lock_take(LOCK_MEMORY);
    if (!started) {
        started = true;
        has_thread = own_thread_start(run, NULL);
        if (!has_thread)
            log_error(
                "the memory of this process cannot follow its turns, because no thread could be "
                "started. Raise its limit of threads and restart it.");
    }
    lock_release(LOCK_MEMORY);
    wake();
}

void mover_freed(void) {
    if (atomic_load(&has_thread) && atomic_load(&goal) != MOVER_REST) wake();
}

void mover_set_goal(enum mover_goal wanted) {
    lock_take(LOCK_MEMORY);
    const bool changes = goal != wanted;
    goal = wanted;
    goal_number += changes;
    lock_release(LOCK_MEMORY);
    if (changes) mover_look();
}

bool mover_end_restore(void) {
    lock_take(LOCK_MEMORY);
    const bool ends =
        goal == MOVER_RESTORE && chunks_all_confirmed_locked() && !physical_whole_wanted();
    if (ends) goal = MOVER_REST;
    goal_number += ends;
    lock_release(LOCK_MEMORY);
    if (ends) mover_look();
    return ends;
}

void mover_forget_context(void *context) {
    lock_take(LOCK_MEMORY);
    const bool runs = has_thread;
    lock_release(LOCK_MEMORY);
    for (bool asked = false; runs && !ending_has_begun();) {
        const uint32_t seen = atomic_load(&left);
        lock_take(LOCK_MEMORY);
        if (asked && leaving_context != context) {
            lock_release(LOCK_MEMORY);
            return;
        }
        if (leaving_context == NULL) {
            leaving_context = context;
            asked = true;
        }
        lock_release(LOCK_MEMORY);
        wake();
        sleep_on(&left, seen, FORGET_LOOK_NS);
    }
    if (runs) ending_await_driver_users(); /* the process ends */
}

void mover_after_fork(void) {
    goal = MOVER_REST;
    goal_number = gave_up = 0;
    started = has_thread = false;
    leaving_context = NULL;
    memset(&state, 0, sizeof(state));
    mover_host_after_fork();
    mover_waits_after_fork();
    pipeline_after_fork();
}
