#include "gate/threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hold.h"
#include "device/failure.h"
#include "device/streams.h"

_Thread_local struct gate_thread *gate_self;

static _Atomic(struct thread_record *) first;
static pthread_key_t end_key;
static bool end_key_made; /* guarded by LOCK_THREADS */

/* A thread that is cancelled ends inside its call, and one that a fork left behind never leaves. */
static void leave_all(struct thread_record *thread) {
    uint64_t sequence = atomic_load(&thread->gate.sequence);
    atomic_store(&thread->gate.sequence, sequence + (sequence & 1));
    uint64_t synchronises = atomic_load(&thread->synchronises);
    atomic_store(&thread->synchronises, synchronises + (synchronises & 1));
    thread->counting = NULL;
    thread->current_context = NULL;
}

/* Gives a record back. Its sequence stays, so that sums over all records only grow. */
static void thread_ends(void *pointer) {
    struct thread_record *thread = pointer;
    gate_self = NULL;
    leave_all(thread);
    streams_thread_ends();
    HOLD(LOCK_THREADS); /* the agent reads rings under it */
    window_thread_ends(thread);
    thread->taken = false;
}

/* Called with LOCK_THREADS held. */
static struct thread_record *take_free_record(void) {
    for (struct thread_record *record = threads_first(); record; record = record->next)
        if (!record->taken) return record;
    /* Lines of its own: every launch writes to the first of them. */
    struct thread_record *record = aligned_alloc(_Alignof(struct thread_record), sizeof(*record));
    if (record == NULL) return NULL;
    memset(record, 0, sizeof(*record));
    record->next = atomic_load_explicit(&first, memory_order_relaxed);
    atomic_store_explicit(&first, record, memory_order_release);
    return record;
}

static struct thread_record *register_thread(void) {
    lock_take(LOCK_THREADS);
    if (!end_key_made) end_key_made = pthread_key_create(&end_key, thread_ends) == 0;
    struct thread_record *record = end_key_made ? take_free_record() : NULL;
    if (record) record->taken = true;
    lock_release(LOCK_THREADS);
    if (record == NULL) return NULL;
    gate_self = &record->gate;
    pthread_setspecific(end_key, record);
    return record;
}

struct thread_record *threads_self(void) {
    if (gate_self) return (struct thread_record *)(void *)gate_self;
    return register_thread();
}

struct thread_record *threads_first(void) {
    return atomic_load_explicit(&first, memory_order_acquire);
}

void threads_context_switches(void) {
    struct thread_record *thread = (struct thread_record *)(void *)gate_self;
    if (thread) thread->current_context = NULL;
}

void threads_synchronise_began(void) {
    struct thread_record *thread = threads_self();
    if (thread) atomic_store(&thread->synchronises, atomic_load(&thread->synchronises) | 1);
}

void threads_synchronise_ended(int cu_result) {
    struct thread_record *thread = threads_self();
    if (thread) atomic_store(&thread->synchronises, (atomic_load(&thread->synchronises) | 1) + 1);
    if (cu_result != 0) failure_look(cu_result);
}

void threads_after_fork(void) {
    struct thread_record *thread = (struct thread_record *)(void *)gate_self;
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        leave_all(record);
        memset(record->rings, 0, sizeof(record->rings));
        record->taken = record == thread;
    }
}
