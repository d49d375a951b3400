/* Managed memory that moves: the driver has made it and keeps it at its addresses, wherever it is.
 * Its pieces leave the device by a prefetch to the host, and come back by one. Nobody knows how
 * much of it is on the device, so a piece counts as there until it has left.
 *
 * LOCK_MEMORY guards the table, and nothing of the driver is called under it. */
#pragma once

#include "memory/chunks.h"

/* Smaller allocations stay: to move one costs more than it frees, and several may share a page. */
#define MANAGED_BYTES_LEAST ((uint64_t)64 << 10)

struct managed {
    uint64_t address; /* first: the table is sorted by it */
    uint64_t bytes;   /* as asked for */
    uint64_t bytes_fixed;
    uint64_t generation; /* of the context with which it goes */
    int32_t device;      /* for which it is counted */
    LIST_ENTRY(managed) next;
    size_t piece_count;
    struct managed_piece {
        struct chunk chunk;
        bool stays; /* by its advice */
    } pieces[];
};

/* A record of what the driver has allocated; NULL: no host memory. */
struct managed *managed_new(uint64_t address, uint64_t bytes, void *context, uint64_t generation,
                            int device);
/* It was claimed in the registry: it is counted, and the claim ends. False: no host memory. */
bool managed_enter(struct managed *managed, uint64_t bytes_claimed);

/* Takes the record of what begins there, or of some that goes with this context, for the one thread
 * that frees it; NULL: there is none. managed_reopen follows, or, with all pieces claimed,
 * managed_remove. */
struct managed *managed_close(uint64_t address);
struct managed *managed_close_of_context(uint64_t generation);
/* It was not freed after all: its pieces are on the device, for all that is known. */
void managed_reopen(struct managed *managed);
void managed_remove(struct managed *managed);

/* Some lies in the range. */
bool managed_is_in(uint64_t address, uint64_t bytes);
/* From now on what lies there stays where it is, but for what is not on the device. The device of
 * some that is news; -1: none is. */
int managed_fix(uint64_t address, uint64_t bytes);

void managed_after_fork(void);
