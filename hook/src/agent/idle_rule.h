/* When a process that holds its turn has been idle for long enough to give it back. PURE: time is
 * an argument, in milliseconds of any monotonic clock.
 *
 * The rule learns: where the process asks again soon after it was robbed of its turn, the gaps
 * between its launches are part of its work (a training loop with a slow data loader), and the
 * patience doubles, up to eight times. It halves again with time.
 *
 * While notebooks of the same user alone wait, the scheduler tells how long, and nothing is learnt:
 * those go by what each has had (decision 0037). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDLE_DOUBLINGS_MAX 3 /* of the patience: to eight idle times */
#define IDLE_SOON 4          /* asking again within so many idle times was a robbery */
#define IDLE_FADES_AFTER 64  /* patience halves after so many idle times */

struct idle_rule {
    uint32_t doublings;     /* of the patience, which is one idle time at first */
    uint64_t doubled_at_ms; /* when that changed last */
    /* Written by whoever sees it: */
    uint32_t idle_ms;     /* setting */
    uint32_t told_ms;     /* the scheduler says how long; 0: it does not */
    uint64_t busy_ms;     /* a call, a synchronise or device work was under way last */
    uint64_t released_ms; /* its turn was given back for idleness then; 0: it was not */
};

/* A call waits for a turn. */
void idle_rule_asked(struct idle_rule *rule, uint64_t now_ms);

/* When the process will have been idle for long enough, if nothing happens. */
uint64_t idle_rule_over_ms(struct idle_rule *rule, uint64_t now_ms);
