#include "gate/gate.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "device/streams.h"
#include "gate/gate_control.h"
#include "gate/gate_mark.h"
#include "memory/chunks.h"

_Atomic uint32_t gate_word = GATE_SHUT;

/* True where membarrier works: then the fast path needs no barrier of its own. Where it does not,
 * the gate is never GATE_OPEN but GATE_WINDOWED with an inactive window, so that every call takes
 * the slow path, whose mark is a full barrier. Written before the gate opens for the first time. */
bool gate_barrier_works;
static _Atomic bool unbounded;
_Atomic bool gate_saw_per_thread;

static bool barrier_register(void) {
#if defined(__SANITIZE_THREAD__)
    return false; /* the thread sanitizer knows nothing of it and would report what it orders */
#endif
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void gate_prepare(void) {
    gate_barrier_works = barrier_register();
}

void gate_open(bool windowed) {
    if (!windowed) atomic_store(&unbounded, true);
    window_set_active(windowed);
    atomic_store(&gate_word, windowed || !gate_barrier_works ? GATE_WINDOWED : GATE_OPEN);
    wait_wake_all();
}

void gate_shut(void) {
    atomic_store(&gate_word, GATE_SHUT);
    window_gate_shuts();
    if (gate_barrier_works) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        record->sequence_at_close = atomic_load(&record->gate.sequence);
        record->left_since_close = !(record->sequence_at_close & 1);
    }
}

uint32_t gate_calls_inside(void) {
    uint32_t inside = 0;
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        if (record->left_since_close) continue;
        /* A record that came after the gate was shut reads the word as shut: 0 is even. */
        record->left_since_close =
            atomic_load(&record->gate.sequence) != record->sequence_at_close ||
            !(record->sequence_at_close & 1);
        inside += !record->left_since_close;
    }
    return inside;
}

bool gate_was_unbounded(void) {
    return atomic_load(&unbounded);
}

void gate_drained(void) {
    atomic_store(&unbounded, false);
    window_turn_drained();
}

uint64_t gate_activity(bool *busy) {
    uint64_t sum = 0;
    *busy = false;
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        uint64_t sequence = atomic_load_explicit(&record->gate.sequence, memory_order_relaxed);
        uint64_t synchronises = atomic_load_explicit(&record->synchronises, memory_order_relaxed);
        sum += sequence + synchronises;
        if ((sequence | synchronises) & 1) *busy = true;
    }
    return sum;
}

/* The context in which the call works, NULL for none: that of its stream, whatever is current on
 * the thread; else the current one. */
static void *context_of(const struct gate_call *call, uint64_t (*number_of)(void *, void **)) {
    void *context = NULL;
    if (streams_is_created(call->stream))
        return number_of(call->stream, &context) != 0 ? context : NULL;
    return contexts_know_current(&context) ? context : NULL;
}

/* Calls that never wait, though the process has no turn: captured ones do nothing on the device,
 * those that cannot work (no context, or one with a sticky error) only answer with their error,
 * what the process does at its end would wait for an agent that no longer asks for a turn, and for
 * an allocation whose claim stands the turn is not given back yet. What may reach memory that is
 * away at the end of the process does not pass: nobody brings that back. */
static bool passes_shut_gate(const struct gate_call *call) {
    const struct driver *cuda = driver_get();
    if (cuda == NULL) return true;
    if (ending_has_begun() && (call->kind == GATE_SYNC || chunks_all_here())) return true;
    if (call->kind == GATE_CLAIM) return true;
    if (call->kind != GATE_SYNC && streams_is_capturing(gate_stream(call->stream, call->variant)))
        return true;
    void *context = context_of(call, streams_number);
    if (context == NULL) return call->kind != GATE_LOOK;
    return contexts_has_failed(context);
}

static uint64_t sequence_of(const struct thread_record *thread) {
    return atomic_load_explicit(&thread->gate.sequence, memory_order_relaxed);
}

static bool gate_or_call_has_changed(void *looks_before) {
    return atomic_load(&gate_word) != GATE_SHUT || wait_looks() != *(uint64_t *)looks_before;
}

/* Until the call is to look at the gate again, as it did after so many looks; false where it is
 * cancelled. */
static bool wait_for_turn(const char *call_name, uint64_t looks_before) {
    const struct wait_condition condition = {
        .holds = gate_or_call_has_changed,
        .argument = &looks_before,
        .until_ns = UINT64_MAX,
        .wants_turn = true,
    };
    return wait_for(&condition, call_name);
}

enum gate_answer gate_enter_slow(const struct gate_call *call) {
    struct thread_record *thread = threads_self();
    if (thread == NULL || (sequence_of(thread) & 1) != 0) return GATE_NESTED;
    thread->counting = NULL;
    if (gate_per_thread(call->stream, call->variant)) atomic_store(&gate_saw_per_thread, true);
    for (;;) {
        const uint64_t looks_before = wait_looks();
        gate_mark_inside(thread);
        uint32_t word = atomic_load(&gate_word);
        if (word == GATE_OPEN) return GATE_PASS;
        if (word == GATE_WINDOWED) {
            if (!window_admit(thread, call)) continue;
            thread->counting_sequence = sequence_of(thread);
            return GATE_PASS;
        }
        if (passes_shut_gate(call)) return GATE_PASS;
        gate_mark_outside(thread);
        if (ending_has_begun()) return GATE_CANCELLED; /* nobody takes a turn or restores now */
        if (!bell_is_heard()) {
            bell_start_agent(call->name);
            continue;
        }
        if (!wait_for_turn(call->name, looks_before)) return GATE_CANCELLED;
    }
}

bool gate_enter_group(void *stream, enum gate_stream_variant variant) {
    struct thread_record *thread = (struct thread_record *)(void *)gate_self;
    if (thread == NULL || thread->group == NULL || (sequence_of(thread) & 1) != 0) return false;
    gate_mark_inside(thread);
    if (atomic_load(&gate_word) == GATE_WINDOWED && window_joins(thread, stream, variant)) {
        thread->counting = thread->group;
        thread->counting_sequence = sequence_of(thread);
        return true;
    }
    gate_mark_outside(thread);
    return false;
}

void gate_leave_slow(const struct gate_call *call, int cu_result) {
    struct thread_record *thread = (struct thread_record *)(void *)gate_self;
    if (thread == NULL) return;
    SIGNALS_WAIT(); /* until the thread is outside: a handler that jumps leaves it so */
    /* A call that left while the window was off did not come here and has left its ring behind. */
    bool counts = thread->counting_sequence == sequence_of(thread);
    struct window_ring *ring = counts ? thread->counting : NULL;
    thread->counting = NULL;
    if (cu_result != 0 && failure_is_sticky(cu_result))
        failure_of(contexts_generation(context_of(call, streams_known_number)), cu_result);
    if (ring && cu_result == 0) window_launched(thread, ring);
    gate_mark_outside(thread);
}

void gate_after_fork(void) {
    atomic_store(&gate_word, GATE_SHUT);
    atomic_store(&unbounded, false);
}
