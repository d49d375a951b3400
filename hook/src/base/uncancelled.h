/* A thread of the program that is cancelled in the middle of our work would leave locks and books
 * as they were then. UNCANCELLED(); keeps that off until its scope ends. Safe in a signal handler.
 */
#pragma once

#include <pthread.h>

static inline void uncancelled_end(const int *state) {
    pthread_setcancelstate(*state, NULL);
}

#define UNCANCELLED()                                                \
    __attribute__((cleanup(uncancelled_end))) int cancel_state_was_; \
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_was_)
