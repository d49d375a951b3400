/* What the user reads when an allocation ends in out-of-memory because of us: one sentence on what
 * is wrong and one on what to do. Of each kind once a minute at most: frameworks try again and
 * again. */
#pragma once

#include <stdint.h>

#include "memory/physical.h"

enum refusal_kind {
    REFUSAL_CAP,    /* it would pass the tenant's cap */
    REFUSAL_BUDGET, /* the device cannot have so much room for this process */
    REFUSAL_ROOM,   /* the driver has no memory, and nobody could make room */
    REFUSAL_HOST,   /* no host memory for our own tables */
    REFUSAL_KINDS,
};

struct refusal {
    enum refusal_kind kind;
    int device;
    uint64_t bytes;       /* what was asked for; 0: not known */
    uint64_t used_bytes;  /* what is there already: of the tenant (cap), of this process (budget) */
    uint64_t limit_bytes; /* and how much there may be; UINT64_MAX: not known */
    const char *call_name;
};

/* Also a line of information for each of them. */
void refusal_tell(const struct refusal *refusal);

/* Memory that a program has made itself cannot become one allocation, for this reason, as somebody
 * who is to be given it needs. */
void refusal_tell_whole(enum physical_whole why, const char *call_name);
