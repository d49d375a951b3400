#include "wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "clock.h"
#include "interrupt.h"

/* Changes with every opening and cancellation; waiting threads sleep on it. */
static _Atomic uint32_t wake_word;
static _Atomic uint32_t calls_waiting;
static _Atomic uint64_t cancellations; /* a wait that began before the latest one fails */
static _Atomic uint64_t calls_cancelled;
static _Atomic uint64_t interrupted_at_ns; /* SIGINT cancelled waits then; 0: not of late */
static _Atomic uint64_t looks; /* a wait that began before the latest one looks at its call again */
static _Atomic(const char *) cause = "";

/* Longer than a provisioner waits for the scheduler. */
#define SECOND_CANCEL_NS_MAX 5000000000u

static void futex_wait(uint32_t seen) {
    syscall(SYS_futex, &wake_word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void wait_wake_all(void) {
    atomic_fetch_add(&wake_word, 1);
    syscall(SYS_futex, &wake_word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

enum gate_answer wait_for_turn(const char *call_name) {
    /* A thread that ended here would wait for ever in our books. */
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    uint64_t cancellations_before = atomic_load(&cancellations);
    uint64_t looks_before = atomic_load(&looks);
    atomic_store(&cause, call_name ? call_name : "");
    interrupt_watch();
    atomic_fetch_add(&calls_waiting, 1);
    agent_notify(AGENT_CALLS_WAITING_CHANGED);

    enum gate_answer answer = GATE_PASS;
    for (;;) {
        uint32_t seen = atomic_load(&wake_word);
        if (atomic_load(&cancellations) != cancellations_before) {
            answer = GATE_CANCELLED;
            atomic_fetch_add(&calls_cancelled, 1);
            break;
        }
        if (atomic_load(&gate_word) != GATE_SHUT || atomic_load(&looks) != looks_before) break;
        futex_wait(seen);
    }

    atomic_fetch_sub(&calls_waiting, 1);
    interrupt_unwatch();
    agent_notify(AGENT_CALLS_WAITING_CHANGED);
    pthread_setcancelstate(cancel_state, NULL);
    return answer;
}

uint32_t wait_cancel_all(void) {
    uint32_t waiting = atomic_load(&calls_waiting);
    if (waiting == 0) return 0;
    atomic_fetch_add(&cancellations, 1);
    wait_wake_all();
    return waiting;
}

void wait_interrupted(void) {
    if (wait_cancel_all() > 0) atomic_store(&interrupted_at_ns, clock_now_ns());
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
    atomic_store(&calls_waiting, 0);
}
