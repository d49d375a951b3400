#include "base/ending.h"

#include <stdatomic.h>

#include "base/clock.h"

#define EXIT_PATIENCE_NS 1000000000u

static _Atomic bool ending;
static _Atomic int driver_users;

bool ending_driver_use_begin(void) {
    atomic_fetch_add(&driver_users, 1);
    if (!atomic_load(&ending)) return true;
    ending_driver_use_end();
    return false;
}

void ending_driver_use_end(void) {
    atomic_fetch_sub(&driver_users, 1);
}

bool ending_has_begun(void) {
    return atomic_load_explicit(&ending, memory_order_relaxed);
}

void ending_begins(void) {
    atomic_store(&ending, true);
}

/* A query takes microseconds, a step of the mover up to a tenth of a second where it makes memory;
 * should one hang, the process must end all the same. */
void ending_await_driver_users(void) {
    uint64_t until_ns = clock_now_ns() + EXIT_PATIENCE_NS;
    while (atomic_load(&driver_users) > 0 && clock_now_ns() < until_ns)
        clock_sleep_ns(100000);
}

void ending_after_fork(void) {
    atomic_store(&driver_users, 0);
}
