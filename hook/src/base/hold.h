/* A lock for the rest of a block: it is released however the block is left. */
#pragma once

#include "base/locks.h"

static inline void hold_ends(const enum runtime_lock *held) {
    lock_release(*held);
}

#define HOLD(lock)                                                                  \
    __attribute__((cleanup(hold_ends))) const enum runtime_lock held_here = (lock); \
    lock_take(held_here)
