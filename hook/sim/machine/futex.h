/* Waiting on a word: private to the process, or shared through the segment. */
#ifndef GPUSHARE_SIM_FUTEX_H
#define GPUSHARE_SIM_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FUTEX_FOREVER UINT64_MAX

/* Waits while *word == value, until `until_ns` of CLOCK_MONOTONIC at most. May return early. */
static inline void futex_wait_flags(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns,
                                    int flags) {
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET | flags, value,
            until_ns == FUTEX_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static inline void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns) {
    futex_wait_flags(word, value, until_ns, FUTEX_PRIVATE_FLAG);
}

static inline void futex_wait_shared(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns) {
    futex_wait_flags(word, value, until_ns, 0);
}

static inline void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

static inline void futex_wake_shared(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* For a moment awake. */
static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
