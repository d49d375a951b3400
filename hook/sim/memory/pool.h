/* Pools of stream-ordered memory: they keep what was freed up to a threshold, and give up the rest
 * when somebody waits for a stream, an event or a context. */
#ifndef GPUSHARE_SIM_POOL_H
#define GPUSHARE_SIM_POOL_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/region.h"
#include "process/objects.h"

#define POOL_FILE_BYTES (1ull << 42)

struct pool {
    struct object object;
    uint32_t device;
    int ordinal;
    bool is_default;
    bool imported; /* from another process, which is charged for it */
    int fd;        /* the file that has its bytes; -1: it is not made to be shared */
    _Atomic bool exported;
    uint32_t handle_types;
    bool rdma_capable;
    _Atomic uint32_t access_mask; /* bit per segment device that may touch its memory */
    struct pool *next_open;       /* guarded by defaults_lock */
    pthread_mutex_t lock;         /* guards the rest */
    uint64_t used_bytes;          /* as they were asked for */
    uint64_t used_high_bytes;
    uint64_t reserved_bytes; /* charged to the device: used, and kept for later */
    uint64_t reserved_high_bytes;
    uint64_t release_threshold;
    uint64_t max_bytes;
    bool closed; /* its user has destroyed it: it keeps nothing */
    struct region *regions;
    int reuse[3];
};

/* What a new pool is. */
struct pool_kind {
    int ordinal;
    bool is_default;
    bool imported;
    int fd; /* the pool's from then on */
    uint64_t max_bytes;
    uint32_t handle_types;
    bool rdma_capable;
};

/* What somebody has waited for: a stream's work, and that of streams for which it waited. */
struct pool_wait {
    struct pool_order place;
    uint64_t legacy_context_id; /* its stream is this context's legacy stream; 0: it is not */
    const struct pool_order *others;
    size_t other_count;
};

#pragma GCC visibility push(hidden)

extern struct object_pool pool_pool;

/* NULL when there are too many; the descriptor stays the caller's then. */
struct pool *pool_open(const struct pool_kind *kind);
/* A file for a new pool's bytes, which other processes may have too; -1: there is none. */
int pool_new_file(void);
/* Its handle is none any more. Allocations that are still in use keep the pool until they are
 * freed. False: it is closed already. */
bool pool_close(struct pool *pool);

/* A device's default pool, and the one that it allocates from. */
struct pool *pool_default(int ordinal);
struct pool *pool_current(int ordinal);
void pool_set_current(int ordinal, struct pool *pool);

/* Room for so many bytes, in a region whose segments are not charged yet. NULL: out of memory. Call
 * with the pool's lock held. */
struct region *pool_grow(struct pool *pool, uint64_t bytes);
/* The device is charged for all segments of an interval. False: it has no room, or the pool is not
 * to have so much. Call with the pool's lock held. */
bool pool_charge(struct pool *pool, struct region *region, uint64_t start, uint64_t bytes);

/* Somebody has waited, for everything where `wait` is NULL: all pools give up what lies above their
 * thresholds. */
void pool_synchronised(const struct pool_wait *wait);

/* The oldest block of a state that the pool has, and the next one, region by region. Call with the
 * pool's lock held. */
struct block *pool_first_block(const struct pool *pool, enum block_state state);
struct block *pool_next_block(const struct block *block);

/* Gives up what is reserved beyond `keep_bytes` and not used. */
void pool_trim(struct pool *pool, uint64_t keep_bytes);
/* A destroyed pool gives up what it can. Call with the pool's lock held. */
void pool_settle(struct pool *pool);

/* Others need memory: all pools give up what they keep. False: they keep nothing. */
bool pool_make_room(void);

/* The piece of the device's memory that backs an address of the pool. */
uint64_t pool_segment_id(struct pool *pool, uint64_t address);

#pragma GCC visibility pop
#endif
