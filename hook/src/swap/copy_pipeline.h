/* Copies of chunks that are on their way, in an own stream for each context. For the mover alone:
 * one thread, no lock. */
#pragma once

#include "memory/chunks.h"

struct flight {
    struct chunk *chunk; /* claimed */
    bool outward;
    void *event; /* NULL: its stream tells */
    struct lane *lane;
    int cu_result;             /* the first error that came with it; it may run all the same */
    uint64_t unknown_since_ns; /* the driver does not tell whether it has ended; 0: it does */
    bool has_no_end; /* it did not for so long that it is asked no more, and the copy may still run
                      */
};

/* Makes the context current on this thread, or leaves it so; false when it cannot be. */
bool pipeline_use_context(void *context);

/* Makes ready what copies of this context need: what the driver answers. */
int pipeline_open(void *context);

/* Begins a copy between the chunk and its `host`, or a prefetch of managed memory. What the driver
 * answers; not 0: no copy began. */
int pipeline_begin(struct chunk *chunk, bool outward);
/* The same where its bytes are, or are to be, at this address. */
int pipeline_begin_at(struct chunk *chunk, uint64_t address, bool outward);

/* The oldest copy, where the driver has said that it has ended; `cu_result` is how. Where that
 * tells of a sticky error, so will all others of that context. An answer that says nothing of the
 * copy is no end: until there is one the copy is on its way, or `has_no_end` after a second. */
bool pipeline_take_ended(struct flight *ended, int *cu_result);

uint32_t pipeline_flights(void);
uint64_t pipeline_bytes(void);
/* Of what leaves one device. */
uint64_t pipeline_leaving_bytes(int device);
/* Of managed memory, on all devices. */
uint64_t pipeline_managed_bytes(bool outward);
bool pipeline_has_arrivals(int device);

/* The context is about to end, and no copy of it is on its way: the stream goes. */
void pipeline_forget_context(void *context);

void pipeline_after_fork(void);
