/* PURE. Small allocations in a block of 2 MiB: which units of 512 bytes are used, and by what.
 * Whoever has the block guards it. Offsets are in bytes from the start of the block. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SLAB_BYTES ((uint64_t)2 << 20)
#define SLAB_UNIT_BYTES 512u
#define SLAB_UNITS 4096u
/* Larger allocations have chunks of their own. */
#define SLAB_ALLOCATION_BYTES_MAX ((uint64_t)1 << 20)

/* Starts as zeros (calloc: pages of it that are never used cost nothing). */
struct slab {
    uint64_t used[SLAB_UNITS / 64]; /* a bit for each unit */
    uint32_t units_used;
    uint32_t too_many; /* so many units that follow each other were not to be had; 0: not known */
    struct slab_entry {
        uint32_t bytes;    /* as asked for; 0 where no allocation begins */
        bool closing;      /* is being freed: nobody may free it again, its units are still taken */
        uint64_t id;       /* of the allocation; never used twice */
    } entries[SLAB_UNITS]; /* by their first unit */
};

/* Takes the first units that are free and follow each other. False: there are not so many. */
bool slab_take(struct slab *slab, uint32_t bytes, uint64_t id, uint64_t *offset);
/* The allocation in which the offset lies, as to its own bytes. NULL: none. */
struct slab_entry *slab_find(struct slab *slab, uint64_t offset, uint64_t *start);
/* The allocation that begins there has been freed. */
void slab_give(struct slab *slab, uint64_t start);
