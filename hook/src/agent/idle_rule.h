/* When a process that holds its turn has been idle for long enough to give it back. PURE: time is
 * an argument, in milliseconds of any monotonic clock.
 *
 * The rule learns: where the process asks again soon after it was robbed of its turn, the gaps
 * between its launches are part of its work (a training loop with a slow data loader), and the
 * patience doubles, up to eight times. It halves again with time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDLE_PATIENCE_MAX 8 /* most idle times that patience grows to */
#define IDLE_SOON 4         /* asking again within so many idle times was a robbery */
#define IDLE_FADES_AFTER 64 /* patience halves after so many idle times */

struct idle_rule {
    uint32_t idle_ms;        /* setting */
    uint32_t patience;       /* idle times to wait: 1, 2, 4 or 8 */
    uint64_t patience_at_ms; /* when it changed last */
    /* Written by whoever sees it: */
    uint64_t busy_ms;     /* a call, a synchronise or device work was under way last */
    uint64_t released_ms; /* its turn was given back for idleness then; 0: it was not */
};

void idle_rule_start(struct idle_rule *rule, uint32_t idle_ms);

/* A call waits for a turn. */
void idle_rule_asked(struct idle_rule *rule, uint64_t now_ms);

/* When the process will have been idle for long enough, if nothing happens. */
uint64_t idle_rule_over_ms(struct idle_rule *rule, uint64_t now_ms);
