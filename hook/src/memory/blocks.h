/* The allocations that backing.c has made, and what is mapped for them: a block is a range of
 * addresses with the chunks that are mapped there, and either one large allocation or a slab of
 * small ones. LOCK_MEMORY guards all of it; nothing is called under it but the C library's
 * allocator.
 *
 * An allocation is freed in two steps: first it is closed, so that nobody else frees it, while its
 * memory stays where it is until the work that may use it is done. */
#pragma once

#include "memory/chunks.h"
#include "memory/pages.h"

struct slab;

struct block {
    uint64_t address;
    uint64_t bytes;              /* mapped, a multiple of CHUNK_GRANULE */
    uint64_t bytes_requested;    /* of a large allocation */
    uint64_t id;                 /* of its allocation, or of the slab's first; never used twice */
    void *context;               /* in which it was made, */
    uint64_t generation;         /* and its generation: with that it goes */
    struct slab *slab;           /* NULL: one large allocation */
    int32_t device;              /* ordinal */
    bool closing;                /* is being freed */
    bool fixed;                  /* for good, as a whole */
    uint32_t shares;             /* or as long as there are such */
    TAILQ_ENTRY(block) next;     /* among all, by id */
    LIST_ENTRY(block) with_room; /* among slabs that may have some */
    bool has_room;               /* it is among them */
    size_t piece_count;
    struct piece {
        struct mapping mapping;
        struct chunk chunk;
    } pieces[];
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
    void *event;    /* put off: the work before its free, in its context; NULL: not known */
    bool is_pooled; /* it is of a pool of ours (pooled.h): */
    void *pool;     /* this one; NULL: it was destroyed */
};

/* A fresh number for an allocation. */
uint64_t blocks_next_id(void);

/* A new block, whose memory was claimed in the registry: it is counted, and the claim ends. With
 * `small_bytes` it becomes a slab, and its first allocation of so many bytes is made. False: no
 * host memory for that, and the block is the caller's as before. */
bool blocks_add(struct block *block, uint32_t small_bytes);
/* Finds room for a small allocation in the slabs of a context. */
bool blocks_take_small(uint64_t generation, uint32_t bytes, uint64_t *address);

/* The allocation in which an address lies. False: it lies in none, or in one that is closed. */
bool blocks_find(uint64_t address, struct allocated *found);
/* Whether the address lies in memory of ours at all. */
bool blocks_cover(uint64_t address);
/* There are blocks, wherever their memory is. */
bool blocks_are_there(void);

/* Closes the allocation that begins there. False: none does, or it is closed already. */
bool blocks_close(uint64_t address, struct allocated *closed);
/* It could not be freed after all. */
void blocks_reopen(const struct allocated *closed);
/* A closed allocation's memory is not used any more. Not NULL: its whole block is to be given back,
 * with blocks_remove; an empty slab is only when its context has another one. */
struct block *blocks_end(const struct allocated *closed);
/* The block and its chunks are forgotten, and counted no more. Its chunks were claimed for that. */
void blocks_remove(struct block *block);

/* Closes the next block of a context that has ended, put-off frees included. Blocks that somebody
 * is freeing just now are left to him. NULL: there are no more. */
struct block *blocks_close_of_context(uint64_t generation);

/* From now on the memory around this address stays where it is. False, and nothing changed: some is
 * not on the device, or is being moved. `*is_news`: it was not fixed before. */
bool blocks_fix(uint64_t address, bool *is_news);
bool blocks_is_fixed(uint64_t address);
/* From now on the memory around this address stays where it is, until that many blocks_unshare. The
 * id of its block (0: any, which it becomes) is what names it then. False, and nothing changed: it
 * is not that block, or some of it is not on the device alone, or it is being freed. */
bool blocks_share(uint64_t address, uint64_t *id);
/* Ends a copy ahead of need of the memory around this address, where all of that is on the device.
 * Returns the host memory of so many bytes, which the caller gives back; NULL: there is none. */
void *blocks_end_copy(uint64_t address, uint64_t *bytes);
/* Whether it may move again; nothing happens where the block is gone. */
bool blocks_unshare(uint64_t address, uint64_t id);
/* Calls `look` for each chunk of the block that lies there, under the lock. */
void blocks_visit(uint64_t address, void (*look)(const struct chunk *chunk, void *argument),
                  void *argument);

/* Where blocks of the device are: those that follow the block with the id `after`, at most `max`.
 * Returns how many. */
struct block_range {
    uint64_t id, address, bytes;
};
size_t blocks_list(int device, uint64_t after, struct block_range *ranges, size_t max);

/* Closed allocations whose end has to wait: until no capture is active, or until their event is
 * done. */
void blocks_put_off(const struct allocated *closed);
bool blocks_take_put_off(struct allocated *closed);
/* The next one with an event below place `*before`, which is moved down to it: who has taken it may
 * ask the event, and puts it off again. */
bool blocks_take_marked(size_t *before, struct allocated *closed);

void blocks_after_fork(void);
