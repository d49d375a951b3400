/* A lock for the rest of a block: it is released however the block is left. */
#pragma once

#include "base/locks.h"

static inline void hold_ends(const enum runtime_lock *held) {
    lock_release(*held);
}

#define HOLD(lock)                                                                  \
    __attribute__((cleanup(hold_ends))) const enum runtime_lock held_here = (lock); \
    lock_take(held_here)

static inline void signals_come(const int *unused) {
    (void)unused;
    locks_signals_come();
}

/* Signals wait until the end of the block. Stands before UNCANCELLED, which ends first then: the
 * handler may jump out. */
#define SIGNALS_WAIT()                                              \
    __attribute__((cleanup(signals_come))) const int wait_here = 0; \
    locks_signals_wait()
