/* Stream-ordered memory: pools keep what was freed up to a threshold, and give up the rest at the
 * next synchronisation point; here that is at once. An allocation is usable as soon as the call
 * returns, which is earlier than the driver promises; its end keeps the stream's order. */
#ifndef GPUSHARE_SIM_POOL_H
#define GPUSHARE_SIM_POOL_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/objects.h"

#define POOL_MEMORY_OF_GRAPH 1u /* a flag of the range */

struct freed;
struct pool_memory;

struct pool {
    struct object object;
    uint32_t device;
    int ordinal;
    bool is_default;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t used_bytes;
    uint64_t used_high_bytes;
    uint64_t reserved_bytes; /* charged to the device: used, and kept for later */
    uint64_t reserved_high_bytes;
    uint64_t release_threshold;
    uint64_t max_bytes;
    struct freed *freed;
    _Atomic uint64_t freed_last; /* the address to use again first */
    int reuse[3];
};

#pragma GCC visibility push(hidden)

extern struct object_pool pool_pool;

/* NULL when there are too many. */
struct pool *pool_open(int ordinal, bool is_default);
/* Allocations that are still in use keep the pool until they are freed. */
void pool_close(struct pool *pool);

/* A device's default pool, and the one that it allocates from. */
struct pool *pool_default(int ordinal);
struct pool *pool_current(int ordinal);
void pool_set_current(int ordinal, struct pool *pool);

CUresult pool_allocate(struct pool *pool, size_t bytes, CUdeviceptr *address, unsigned flags);

/* Gives up what is reserved beyond `keep_bytes` and not used. */
void pool_trim(struct pool *pool, uint64_t keep_bytes);

/* A free was asked for in a stream that has yet to come to it: its ticket; 0: out of memory. */
uint64_t pool_note_free(struct pool *pool, uint64_t address, uint64_t bytes, uint64_t stream_id);
void pool_forget_free(struct pool *pool, uint64_t ticket);

/* Memory of this size that the stream has freed, taken back; 0 when it has none. */
uint64_t pool_take_again(struct pool *pool, uint64_t bytes, uint64_t stream_id);

/* The executor came to this free of an allocation: its bytes go back to its pool, unless the
 * stream has taken them again meanwhile. */
void pool_release(uint64_t address, uint64_t ticket);

/* Memory that a graph owns: freed when the graph and all that was made of it are gone. NULL: out of
 * memory. */
struct pool_memory *pool_memory_new(struct pool *pool, size_t bytes, CUdeviceptr *address);
void pool_memory_hold(struct pool_memory *memory);
void pool_memory_drop(struct pool_memory *memory);

#pragma GCC visibility pop
#endif
