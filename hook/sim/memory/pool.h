/* Stream-ordered memory: pools keep what was freed up to a threshold, and give up the rest when
 * somebody waits for a stream, an event or a context. An allocation is usable as soon as the call
 * returns, which is earlier than the driver promises; its end keeps the stream's order. */
#ifndef GPUSHARE_SIM_POOL_H
#define GPUSHARE_SIM_POOL_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/objects.h"

struct freed;
struct graph_memory;

/* What a stream waits for: another stream's work up to a place. */
struct pool_order {
    uint64_t stream_id;
    uint64_t sequence;
};

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
    uint64_t used_bytes;
    uint64_t used_high_bytes;
    uint64_t reserved_bytes; /* charged to the device: used, and kept for later */
    uint64_t reserved_high_bytes;
    uint64_t release_threshold;
    uint64_t max_bytes;
    uint64_t file_next; /* where the file has room; earlier places are not taken again */
    bool closed;        /* its user has destroyed it: it keeps nothing */
    struct freed *freed;
    _Atomic uint64_t freed_last; /* the address to use again first */
    int reuse[3];
};

#pragma GCC visibility push(hidden)

extern struct object_pool pool_pool;

/* NULL when there are too many. */
struct pool *pool_open(int ordinal, bool is_default);
/* A file for a new pool's bytes, which other processes may have too. */
bool pool_share(struct pool *pool);
/* Allocations that are still in use keep the pool until they are freed. */
void pool_close(struct pool *pool);

/* A device's default pool, and the one that it allocates from. */
struct pool *pool_default(int ordinal);
struct pool *pool_current(int ordinal);
void pool_set_current(int ordinal, struct pool *pool);

CUresult pool_allocate(struct pool *pool, size_t bytes, CUdeviceptr *address);

/* A place in the table for memory that is charged elsewhere: of a graph, or (graph is NULL) what
 * another process has at `file_offset` of an imported pool. False: out of memory. */
bool pool_place(struct pool *pool, size_t bytes, struct graph_memory *graph, CUdeviceptr *address);
bool pool_place_import(struct pool *pool, uint64_t file_offset, size_t bytes, CUdeviceptr *address);
void pool_displace(uint64_t address);

/* Somebody has waited: all pools give up what lies above their thresholds. */
void pool_synchronised(void);

/* Gives up what is reserved beyond `keep_bytes` and not used. */
void pool_trim(struct pool *pool, uint64_t keep_bytes);

/* A free was asked for in a stream that has yet to come to it: its ticket; 0: out of memory. */
uint64_t pool_note_free(struct pool *pool, uint64_t address, uint64_t bytes, uint64_t stream_id);
void pool_forget_free(struct pool *pool, uint64_t ticket);
/* Its place in the stream. */
void pool_place_free(struct pool *pool, uint64_t ticket, uint64_t sequence);
/* True when a free of it was asked for already. */
bool pool_is_freed(struct pool *pool, uint64_t address);

/* Memory of this size that was freed in the stream, or at a place in another one for which the
 * stream waits, taken back; 0 when there is none. */
uint64_t pool_take_again(struct pool *pool, uint64_t bytes, uint64_t stream_id,
                         const struct pool_order *waits, size_t count);
/* The same, of any stream: where its free is told in `place`, for the taker to wait for it. */
uint64_t pool_take_pending(struct pool *pool, uint64_t bytes, struct pool_order *place);

/* The executor came to this free of an allocation: its bytes go back to its pool, unless the
 * stream has taken them again meanwhile. */
void pool_release(uint64_t address, uint64_t ticket);

#pragma GCC visibility pop
#endif
