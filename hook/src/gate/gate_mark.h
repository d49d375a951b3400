/* A thread's mark, for the slow paths: inside or outside a gated call. */
#pragma once

#include "gate/threads.h"

/* True where membarrier works: then no thread needs a barrier of its own (gate.c). */
extern bool gate_barrier_works __attribute__((visibility("hidden")));

/* Marks the thread inside (again), before it loads the gate word. Where the closer has no
 * membarrier this is a full barrier, which the load that follows cannot pass. */
static inline void gate_mark_inside(struct thread_record *thread) {
    uint64_t sequence = atomic_load_explicit(&thread->gate.sequence, memory_order_relaxed) | 1;
    if (!gate_barrier_works) {
        atomic_exchange(&thread->gate.sequence, sequence);
        return;
    }
    atomic_store_explicit(&thread->gate.sequence, sequence, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void gate_mark_outside(struct thread_record *thread) {
    uint64_t sequence = atomic_load_explicit(&thread->gate.sequence, memory_order_relaxed);
    atomic_store_explicit(&thread->gate.sequence, sequence + (sequence & 1), memory_order_release);
}
