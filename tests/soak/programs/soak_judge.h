/* What a soak tenant says, counts and draws, and how it judges each answer of the driver. */
#ifndef TESTS_SOAK_JUDGE_H
#define TESTS_SOAK_JUDGE_H

#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 256
#define CALLS_MAX 64
#define ALLOWED_MAX 32

static struct {
    _Atomic uint64_t operations, checks, bytes_checked, refused, cancelled;
} totals;
static _Atomic bool is_ending;       /* with threads at work: calls may fail from then on */
static _Atomic bool has_descriptors; /* false while the limit of descriptors is low */
static long allowed[ALLOWED_MAX];    /* results that faults of the machine may give */
static int allowed_count;

/* A line is one write, so that lines of threads do not mix. No lock is left by who is cancelled. */
static void say(const char *format, ...) {
    char line[LINE_BYTES];
    int cancel_state;
    va_list arguments;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[length] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length + 1) < 0) _exit(5);
    pthread_setcancelstate(cancel_state, NULL);
}

static void sleep_ms(long milliseconds) {
    const struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The next number of a generator (splitmix64). */
static uint64_t draw(uint64_t *state) {
    uint64_t value = *state += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/* Once for each kind of call. */
static void tell_failure(const char *call, long result) {
    static _Atomic(const char *) told[CALLS_MAX];
    for (int i = 0; i < CALLS_MAX; i++) {
        const char *other = NULL;
        if (atomic_compare_exchange_strong(&told[i], &other, call)) break;
        if (strcmp(other, call) == 0) return;
    }
    say("failed %s %ld", call, result);
}

static void read_allowed(void) {
    const char *text = getenv("SOAK_MAY_ANSWER");
    while (text != NULL && *text != '\0' && allowed_count < ALLOWED_MAX) {
        char *end;
        allowed[allowed_count++] = strtol(text, &end, 10);
        text = *end == ',' ? end + 1 : NULL;
    }
}

static bool is_allowed(CUresult result) {
    for (int i = 0; i < allowed_count; i++)
        if (allowed[i] == (long)result) return true;
    return false;
}

/* Counts the answer of a call, and tells of one that must not be. True: the call was done. */
static bool judge(const char *call, CUresult result, bool may_lack_memory) {
    if (result == CUDA_SUCCESS) return true;
    if (result == CUDA_ERROR_NOT_PERMITTED)
        atomic_fetch_add(&totals.cancelled, 1);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY && may_lack_memory)
        atomic_fetch_add(&totals.refused, 1);
    else if (!is_allowed(result) && !atomic_load(&is_ending))
        tell_failure(call, result);
    return false;
}

#define DONE(call, ...) judge(#call, call(__VA_ARGS__), false)
#define GRANTED(call, ...) judge(#call, call(__VA_ARGS__), true)

/* For calls that make or end something that outlives the thread: who is cancelled in one would not
 * know whether it has, and may leave the driver's own locks behind. */
#define UNCANCELLED(call)                                           \
    ({                                                              \
        int state_was;                                              \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_was); \
        const bool has_done = (call);                               \
        pthread_setcancelstate(state_was, NULL);                    \
        has_done;                                                   \
    })
#define ENDED(call, ...) UNCANCELLED(DONE(call, __VA_ARGS__))

#endif
