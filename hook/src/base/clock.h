/* The hook's clock: CLOCK_MONOTONIC, the same for all processes of the machine. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "base/uncancelled.h"

static inline uint64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_now_ms(void) {
    return clock_now_ns() / 1000000;
}

static inline void clock_sleep_ns(uint64_t ns) {
    UNCANCELLED();
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&pause, NULL);
}
