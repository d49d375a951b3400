/* One record per thread that ever made a gated call. Records are never freed, only used again, so
 * that the agent can walk the list without a lock. */
#pragma once

#include "gate/window.h"

struct thread_record {
    _Alignas(64) struct gate_thread gate; /* must be first: gate_self points here */
    _Atomic uint64_t synchronises;        /* odd while the thread waits in a synchronise; its own */
    uint64_t sequence_at_close;           /* the agent's: what it saw when it shut the gate */
    bool left_since_close;                /* the agent's */
    struct window_ring *counting; /* the thread's: ring of the call that the window admitted, */
    uint64_t counting_sequence;   /* and the sequence inside that call */
    struct window_ring *group; /* the thread's: where its last launch was counted; NULL: nowhere */
    void *current_context; /* the thread's: what the driver said within this group of launches into
                              a default stream; NULL: ask */
    struct window_ring rings[WINDOW_RINGS];
    struct thread_record *next; /* never changes once the record is in the list */
    bool taken;                 /* guarded by LOCK_THREADS */
};

/* The calling thread's record; NULL only when there is no memory for one. */
struct thread_record *threads_self(void);

/* Head of the list; walk it by `next`. */
struct thread_record *threads_first(void);

/* The calling thread's current context is about to be another one. */
void threads_context_switches(void);

/* The thread is about to wait for the device (synchronise calls), or has done so: meanwhile it is
 * busy, not idle. `cu_result` may tell of a sticky error. */
void threads_synchronise_began(void);
void threads_synchronise_ended(int cu_result);

/* In a child after fork: only the calling thread is left, and it is outside. */
void threads_after_fork(void);
