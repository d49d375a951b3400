#include "base/locks.h"

#include <pthread.h>

static pthread_mutex_t locks[LOCKS] = {
    [0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER,
};

void lock_take(enum runtime_lock lock) {
    pthread_mutex_lock(&locks[lock]);
}

void lock_release(enum runtime_lock lock) {
    pthread_mutex_unlock(&locks[lock]);
}

void locks_before_fork(void) {
    for (int i = 0; i < LOCKS; i++)
        lock_take((enum runtime_lock)i);
}

void locks_after_fork_in_parent(void) {
    for (int i = LOCKS - 1; i >= 0; i--)
        lock_release((enum runtime_lock)i);
}

void locks_after_fork_in_child(void) {
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&locks[i], NULL);
}
