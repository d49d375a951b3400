/* Waiting for the turn, for budget and for room, so that it can be cancelled from outside and by
 * SIGINT. What is waited for is the caller's condition. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Waits until the condition holds (true), the wait is cancelled (false), or the clock shows
 * `until_ns` (UINT64_MAX: never): then true as well, and the caller finds out. The condition is
 * looked at after every wait_wake_all, and first when the wait can be cancelled already: what it
 * tells others then is told in time. With `wants_turn` the call counts, from the second look on,
 * among those for which the agent asks for a turn. A look that `polls` sleeps by itself, for
 * milliseconds, on what wakes no thread of ours; it may put `until_ns` off. */
struct wait_condition {
    bool (*holds)(void *argument);
    void *argument;
    uint64_t until_ns;
    bool wants_turn;
    bool polls;
};
bool wait_for(const struct wait_condition *condition, const char *call_name);

/* The gate word, a budget, or what else a condition looks at has changed. */
void wait_wake_all(void);

/* Fails all calls that wait now, and for a moment those with which their threads try another way;
 * says how many. A cell that begins is not meant. Safe in a signal handler. */
uint32_t wait_cancel_all(void);
void wait_cell_begins(void);

/* The same for SIGINT. The kernel's provisioner, which sent it, tells the scheduler as well: that
 * this cancellation is still to come is what wait_interrupt_was_seen answers, once. By then the
 * next cell may wait already, which nobody interrupted. */
void wait_interrupted(void);
bool wait_interrupt_was_seen(void);

/* This thread waits no more: its wait ends as cancelled, or the program's handler of the signal
 * leaves it by a jump and never comes back to it. Safe in a signal handler. */
void wait_let_go(void);

/* Calls that wait are to find out whether they have to: a context has failed, say. */
void wait_look_again(void);
/* Changes with each of them. */
uint64_t wait_looks(void);

/* Those that want the turn. */
uint32_t wait_calls_waiting(void);
uint64_t wait_calls_cancelled(void);
/* Name of the call that began to wait last; "" before any did. */
const char *wait_cause(void);

void wait_after_fork(void);
