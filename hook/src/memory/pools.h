/* What stream-ordered pools keep of a device beyond what is allocated from them: the driver goes on
 * holding what was freed, so it counts as the process's, and as fixed. What is allocated counts by
 * itself. Looked at whenever a call may have changed it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Pools beyond so many are not looked at. */
#define POOLS_MAX 64

/* A pool of the device from which something is allocated now. */
void pools_seen(void *pool, int device);
/* It is about to be destroyed: nobody asks the driver about it any more when this returns. */
void pools_leaving(void *pool);
/* Asks the driver what each keeps, counts it, and calls `changed` where that is another number. */
void pools_look(void (*changed)(int device));

/* What the pool keeps, as it was last looked at: an allocation from it takes that first. */
uint64_t pools_kept_bytes(void *pool);

void pools_after_fork(void);
