/* The driver has no memory although the budget has: others are asked to make room. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a call of this thread lacks. */
struct shortage {
    int device;
    uint64_t bytes;       /* it takes so much, */
    uint64_t bytes_extra; /* and the driver perhaps so much more for it; */
    uint64_t bytes_least; /* not less is asked for, even if the driver claims to have it all */
    bool has_claim;       /* they are claimed, and fit the budget */
    bool opens_context;   /* perhaps the first one: the process may not be connected yet */
    const char *call_name;
};

/* After STAYS, AT_GATE and CANCELLED what was claimed counts as a claim that waits. */
enum shortage_answer {
    SHORTAGE_ALONE,     /* there is nobody to ask: the driver's answer stands */
    SHORTAGE_STAYS,     /* there is no room: likewise */
    SHORTAGE_OVER,      /* the call is worth another try */
    SHORTAGE_CANCELLED, /* the wait was cancelled: GATE_CANCELLED_RESULT */
    SHORTAGE_AT_GATE,   /* as OVER, and the call waits at the gate (RESIDENCY_AT_GATE) */
};

/* Asks the scheduler for what is missing beside what the driver has free, and waits for it, up to
 * reclaim_ms, or for as long as the scheduler says. Not inside the gate's mark. */
enum shortage_answer shortage_ask(const struct shortage *shortage);
