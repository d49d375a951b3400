#include "base/locks.h"

#include <pthread.h>
#include <signal.h>

static pthread_mutex_t locks[LOCKS] = {
    [0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER,
};

/* How many this thread holds, or waits for, and the signal that waits until it holds none. */
static _Thread_local volatile sig_atomic_t held, put_off __attribute__((tls_model("initial-exec")));

void lock_take(enum runtime_lock lock) {
    held++;
    pthread_mutex_lock(&locks[lock]);
}

bool lock_try(enum runtime_lock lock) {
    held++;
    const bool taken = pthread_mutex_trylock(&locks[lock]) == 0;
    if (!taken) locks_signals_come();
    return taken;
}

void lock_release(enum runtime_lock lock) {
    pthread_mutex_unlock(&locks[lock]);
    locks_signals_come();
}

void locks_signals_wait(void) {
    held++;
}

bool locks_signal_waits(void) {
    return put_off != 0;
}

void locks_signals_come(void) {
    if (--held > 0 || put_off == 0) return;
    const int number = put_off;
    put_off = 0;
    raise(number);
}

bool locks_put_off(int signal_number) {
    if (held > 0) put_off = signal_number;
    return held > 0;
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
    held -= LOCKS; /* a handler that forks may have interrupted who holds off signals */
    put_off = 0;
}
