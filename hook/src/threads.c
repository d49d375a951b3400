#include "threads.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "locks.h"

_Thread_local struct gate_thread *gate_self;

static _Atomic(struct thread_record *) first;
static pthread_key_t end_key;
static bool end_key_made; /* guarded by LOCK_THREADS */

/* Gives a record back. Its sequence stays, so that sums over all records only grow. */
static void thread_ends(void *pointer) {
    struct thread_record *self = pointer;
    gate_self = NULL;
    lock_take(LOCK_THREADS); /* the agent reads rings under it */
    window_thread_ends(self);
    self->taken = false;
    lock_release(LOCK_THREADS);
}

/* Called with LOCK_THREADS held. */
static struct thread_record *take_free_record(void) {
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        if (!record->taken) return record;
    }
    struct thread_record *record = calloc(1, sizeof(*record));
    if (record == NULL) return NULL;
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

void threads_after_fork(void) {
    struct thread_record *self = (struct thread_record *)(void *)gate_self;
    for (struct thread_record *record = threads_first(); record; record = record->next) {
        uint64_t sequence = atomic_load(&record->gate.sequence);
        atomic_store(&record->gate.sequence, sequence + (sequence & 1));
        uint64_t synchronises = atomic_load(&record->synchronises);
        atomic_store(&record->synchronises, synchronises + (synchronises & 1));
        record->counting = NULL;
        memset(record->rings, 0, sizeof(record->rings));
        record->taken = record == self;
    }
}
