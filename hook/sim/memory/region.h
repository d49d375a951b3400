/* Where the memory of a pool lies. A region is a piece of address space; the device is charged for
 * some of its segments, and blocks say who has which bytes. What no block has is free. Blocks lie
 * in charged segments only.
 *
 * The lock of the pool guards all of this. */
#ifndef GPUSHARE_SIM_REGION_H
#define GPUSHARE_SIM_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGION_SEGMENT_BYTES (32ull << 20)

static inline uint64_t region_whole_segments(uint64_t bytes) {
    return (bytes + REGION_SEGMENT_BYTES - 1) & ~(REGION_SEGMENT_BYTES - 1);
}

/* A place in a stream. As what a stream waits for: the stream's work up to there. */
struct pool_order {
    uint64_t stream_id;
    uint64_t sequence;
};

enum block_state {
    BLOCK_LIVE,
    BLOCK_FREED, /* a free was asked for, and its stream has yet to come to it */
    BLOCK_DONE,  /* the stream has come to it, and nobody has waited for that */
    BLOCK_STATES,
};

struct block {
    struct region *region;
    struct block *previous; /* by address */
    struct block *next;
    struct block *older; /* of the same state, in the order in which they came to it */
    struct block *newer;
    uint64_t start;
    uint64_t bytes; /* with what rounding adds */
    uint64_t bytes_asked;
    enum block_state state;
    uint64_t ticket;             /* of its free */
    struct pool_order freed_at;  /* sequence UINT64_MAX: not known yet */
    uint64_t waiting_context_id; /* whose legacy stream waits for that place; 0: nobody's */
};

struct block_list {
    struct block *oldest;
    struct block *newest;
};

struct segment {
    uint64_t id;   /* 0: the device is not charged for it */
    uint32_t used; /* how many blocks reach into it that are live or freed */
    uint32_t done;
};

struct region {
    struct region *next;
    uint64_t start;
    uint64_t bytes; /* whole segments */
    unsigned char *storage;
    int fd;               /* the file that has the bytes; -1: none */
    uint64_t file_offset; /* where */
    struct block *blocks;
    struct block *packed; /* up to its end the region is full of live blocks; NULL: not known */
    struct block_list of_state[BLOCK_STATES];
    uint64_t charged; /* so many segments */
    struct segment segments[];
};

/* Where a block may go. */
struct block_place {
    struct region *region;
    struct block *before; /* a block at a lower address; NULL: begin with the first one */
    uint64_t start;
};

#pragma GCC visibility push(hidden)

/* NULL: out of memory. The descriptor stays the caller's. */
struct region *region_open(uint64_t bytes, int fd, uint64_t file_offset);
/* The same for bytes of another process: they lie in the segment as they do there. */
struct region *region_of_others(uint64_t bytes, int fd, uint64_t file_offset);
/* Forgets the blocks too. */
void region_close(struct region *region);

static inline uint64_t region_end(const struct region *region) {
    return region->start + region->bytes;
}

static inline uint64_t block_end(const struct block *block) {
    return block->start + block->bytes;
}

unsigned char *region_bytes_at(const struct region *region, uint64_t address);
/* What is there is lost: poisoned, or zero. */
void region_wipe(const struct region *region, uint64_t address, uint64_t bytes);

/* The lowest address of this region from which on so many bytes are free or usable. `only_charged`:
 * in segments that the device is charged for. No block reaches beyond it from below. */
bool region_find(struct region *region, uint64_t bytes, bool only_charged,
                 bool (*usable)(const struct block *block, const void *argument),
                 const void *argument, struct block_place *place);

/* The first block at a place, or behind it. */
struct block *region_block_at(const struct block_place *place);

/* Puts a live block at a place that was found. Others that begin there are cut, or go. */
void region_put(const struct block_place *place, struct block *block);
void region_set_state(struct block *block, enum block_state state);
/* Takes a block out and frees it. */
void region_forget(struct block *block);

/* Of the segments in an interval: how many are not charged; and marks them all as charged. */
uint64_t region_uncharged(const struct region *region, uint64_t start, uint64_t bytes);
void region_note_charged(struct region *region, uint64_t start, uint64_t bytes);

/* Gives up charged segments that nobody uses, the last ones first, so many at most; how many.
 * `unobserved`: what is freed may go too where nobody has waited for that. */
uint64_t region_give_up(struct region *region, bool unobserved, uint64_t number);

bool region_is_empty(const struct region *region);

#pragma GCC visibility pop
#endif
