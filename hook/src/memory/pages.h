/* What is mapped where: a table of two levels, by pages of 2 MiB, that any address of a device
 * fits. A question costs the same however much memory there is. Guarded by LOCK_MEMORY, which the
 * callers hold. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PAGE_BYTES ((uint64_t)2 << 20)

struct block;
struct chunk;
struct segment;
struct view;

/* Physical memory at an address. */
struct mapping {
    uint64_t address;
    uint64_t bytes;          /* of whole pages; all of the chunk */
    struct chunk *chunk;     /* what is there (chunks.h) */
    struct block *block;     /* of which it is a part (blocks.h), or */
    struct view *view;       /* what the program has mapped (physical.h), or */
    struct segment *segment; /* of a pool (pooled.h); none of them: ours, for copies */
    const uint8_t *access;   /* CUmemAccess_flags of each device; NULL: as the contexts have it */
    struct mapping *also;    /* another one of its chunk */
    bool there;              /* the driver has mapped it; written like `handle` of the chunk */
};

/* False: no host memory for it, and nothing is changed. The mapping stays where it is until it
 * leaves. */
bool pages_enter(struct mapping *mapping);
void pages_leave(const struct mapping *mapping);
/* What is mapped at the address; NULL: nothing that we know of. */
struct mapping *pages_find(uint64_t address);

void pages_after_fork(void);
