#include "base/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/interrupt.h"

/* Changes with every opening and cancellation; waiting threads sleep on it. */
static _Atomic uint32_t wake_word;
static _Atomic uint32_t waits;              /* all that can be cancelled */
static _Atomic uint32_t calls_waiting;      /* of those, the ones that want the turn */
static _Atomic uint64_t cancellations;      /* a wait that began before the latest one fails */
static _Atomic uint64_t newest_began_after; /* so many cancellations: the wait that began last */
static _Atomic uint64_t calls_cancelled;
static _Atomic uint64_t interrupted_at_ns; /* SIGINT cancelled waits then; 0: not of late */
static _Atomic uint64_t fresh_since_ns;    /* a cell began */
static _Atomic uint64_t looks; /* a wait that began before the latest one looks at its call again */
static _Atomic(const char *) cause = "";

/* What of that is this thread's; its own signal handler takes it back before the program's runs. */
static _Thread_local struct {
    _Atomic bool waits, wants_turn;
    int cancel_state; /* as it was before */
    uint64_t cancelled_at_ns;
} mine __attribute__((tls_model("initial-exec")));

/* Longer than a provisioner waits for the scheduler. */
#define SECOND_CANCEL_NS_MAX 5000000000u

/* A library whose call was cancelled may try another way, before the program hears of it. */
#define OTHER_WAYS_NS 250000000u

/* Sleeps until the word is not what was seen, or the time has come. */
static void futex_wait(uint32_t seen, uint64_t until_ns) {
    uint64_t now_ns = until_ns == UINT64_MAX ? 0 : clock_now_ns();
    if (now_ns >= until_ns) return;
    uint64_t ns = until_ns - now_ns;
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, &wake_word, FUTEX_WAIT_PRIVATE, seen, until_ns == UINT64_MAX ? NULL : &pause,
            NULL, 0);
}

void wait_wake_all(void) {
    atomic_fetch_add(&wake_word, 1);
    syscall(SYS_futex, &wake_word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void begin_to_want_turn(const char *call_name) {
    atomic_store(&cause, call_name ? call_name : "");
    atomic_fetch_add(&calls_waiting, 1);
    atomic_store(&mine.wants_turn, true);
    bell_ring(NEWS_CALLS_WAITING_CHANGED);
}

void wait_let_go(void) {
    if (atomic_exchange(&mine.wants_turn, false)) {
        atomic_fetch_sub(&calls_waiting, 1);
        bell_ring(NEWS_CALLS_WAITING_CHANGED);
    }
    if (!atomic_exchange(&mine.waits, false)) return;
    atomic_fetch_sub(&waits, 1);
    pthread_setcancelstate(mine.cancel_state, NULL);
}

bool wait_for(const struct wait_condition *condition, const char *call_name) {
    if (mine.cancelled_at_ns > atomic_load(&fresh_since_ns) &&
        clock_now_ns() - mine.cancelled_at_ns < OTHER_WAYS_NS)
        return false;
    /* A thread that ended here would wait for ever in our books. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mine.cancel_state);
    uint64_t cancellations_before = atomic_load(&cancellations);
    atomic_store(&newest_began_after, cancellations_before);
    /* Counted before the signal is watched: one that comes from then on finds what to cancel. */
    atomic_fetch_add(&waits, 1);
    atomic_store(&mine.waits, true);
    interrupt_watch();

    bool cancelled;
    for (;;) {
        uint32_t seen = atomic_load(&wake_word);
        cancelled = atomic_load(&cancellations) != cancellations_before;
        if (cancelled || condition->holds(condition->argument)) break;
        if (condition->until_ns != UINT64_MAX && clock_now_ns() >= condition->until_ns) break;
        if (condition->wants_turn && !atomic_load(&mine.wants_turn)) begin_to_want_turn(call_name);
        if (!condition->polls) futex_wait(seen, condition->until_ns);
    }

    if (cancelled) atomic_fetch_add(&calls_cancelled, 1);
    if (cancelled) mine.cancelled_at_ns = clock_now_ns();
    interrupt_unwatch();
    return !cancelled;
}

void wait_cell_begins(void) {
    atomic_store(&fresh_since_ns, clock_now_ns());
}

uint64_t wait_looks(void) {
    return atomic_load(&looks);
}

uint32_t wait_cancel_all(void) {
    const uint32_t waiting = atomic_load(&waits);
    atomic_fetch_add(&cancellations, 1);
    wait_wake_all();
    return waiting;
}

void wait_interrupted(void) {
    /* Else the scheduler's word of this interrupt came before, and its waits only have to wake. */
    const bool is_first = atomic_load(&newest_began_after) == atomic_load(&cancellations);
    if (wait_cancel_all() > 0 && is_first) atomic_store(&interrupted_at_ns, clock_now_ns());
}

bool wait_interrupt_was_seen(void) {
    uint64_t at_ns = atomic_exchange(&interrupted_at_ns, 0);
    return at_ns != 0 && clock_now_ns() - at_ns < SECOND_CANCEL_NS_MAX;
}

void wait_look_again(void) {
    atomic_fetch_add(&looks, 1);
    wait_wake_all();
}

uint32_t wait_calls_waiting(void) {
    return atomic_load(&calls_waiting);
}

uint64_t wait_calls_cancelled(void) {
    return atomic_load(&calls_cancelled);
}

const char *wait_cause(void) {
    return atomic_load(&cause);
}

void wait_after_fork(void) {
    atomic_store(&waits, 0);
    atomic_store(&calls_waiting, 0);
}
