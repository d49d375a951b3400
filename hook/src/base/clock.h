/* The hook's clock: CLOCK_MONOTONIC, the same for all processes of the machine. */
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_now_ms(void) {
    return clock_now_ns() / 1000000;
}

/* A raw call: nanosleep(3) is a cancellation point, and a signal handler may jump out of here. */
static inline void clock_sleep_ns(uint64_t ns) {
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_nanosleep, &pause, NULL);
}
