/* The allocations that backing.c has made: blocks of mapped memory in address order, each one large
 * allocation or a slab of small ones. LOCK_BLOCKS guards all of it; nothing is called under it but
 * the C library's allocator.
 *
 * An allocation is freed in two steps: first it is closed, so that nobody else frees it, while its
 * memory stays where it is until the work that may use it is done. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slab;

struct block {
    uint64_t address;
    uint64_t bytes;           /* mapped, a multiple of CHUNK_GRANULE */
    uint64_t bytes_requested; /* of a large allocation */
    uint64_t id;              /* of it; never used twice */
    void *context;            /* in which it was made, */
    uint64_t generation;      /* and its generation: with that it goes */
    int32_t device;           /* ordinal */
    bool closing;             /* is being freed */
    struct slab *slab;        /* NULL: one large allocation */
};

/* One allocation, as the program knows it. */
struct allocated {
    uint64_t address;
    uint64_t bytes; /* as asked for */
    uint64_t id;
    void *context;
    uint64_t generation; /* of the context */
    int32_t device;
    uint64_t block_address; /* the block in which it lies */
    uint64_t block_bytes;
    void *event; /* put off: the work before its free, in its context; NULL: not known */
};

/* A fresh number for an allocation. */
uint64_t blocks_next_id(void);

/* A new block. With `small_bytes` it becomes a slab, and its first allocation of so many bytes is
 * made. False: no host memory for that. */
bool blocks_add(const struct block *block, uint32_t small_bytes);
/* Finds room for a small allocation in the slabs of a context. */
bool blocks_take_small(uint64_t generation, uint32_t bytes, uint64_t *address);

/* The allocation in which an address lies. False: it lies in none, or in one that is closed. */
bool blocks_find(uint64_t address, struct allocated *found);
/* Whether the address lies in memory of ours at all. */
bool blocks_cover(uint64_t address);

/* Closes the allocation that begins there. False: none does, or it is closed already. */
bool blocks_close(uint64_t address, struct allocated *closed);
/* It could not be freed after all. */
void blocks_reopen(const struct allocated *closed);
/* A closed allocation's memory is not used any more. True: its whole block is to be given back,
 * with blocks_remove; an empty slab is only when its context has another one. */
bool blocks_end(const struct allocated *closed, struct block *unused);
void blocks_remove(const struct block *block);

/* Closes the next block of a context that has ended, put-off frees included. Blocks that somebody
 * is freeing just now are left to him. False: there are no more. */
bool blocks_close_of_context(uint64_t generation, struct block *closed);

/* Closed allocations whose end has to wait: until no capture is active, or until their event is
 * done. */
void blocks_put_off(const struct allocated *closed);
bool blocks_take_put_off(struct allocated *closed);
/* Those with an event, below place `*before`, which is moved down to them; and taking such a one,
 * false when it is gone. What lies below stays in its place. */
size_t blocks_look_put_off(size_t *before, struct allocated *out, size_t max);
bool blocks_take_looked_at(const struct allocated *put_off);

void blocks_after_fork(void);
