#define _GNU_SOURCE
#include "memory/pool.h"

#include <stdlib.h>
#include <string.h>

#include "machine/journal.h"
#include "memory/address.h"
#include "memory/memory.h"
#include "process/process.h"

struct object_pool pool_pool = OBJECT_POOL(struct pool, 4096);
static struct pool *default_pools[SIM_DEVICES_MAX]; /* by ordinal; guarded by defaults_lock */
static struct pool *current_pools[SIM_DEVICES_MAX];
static pthread_mutex_t defaults_lock = PTHREAD_MUTEX_INITIALIZER;
/* Held while a free takes effect; taken before all other locks. Who allocates waits for that, so
 * that memory which a stream has freed is used again however far the stream is. */
static pthread_mutex_t releases_lock = PTHREAD_MUTEX_INITIALIZER;

/* A free that its stream has not come to yet: until then the stream may have the memory again. */
struct freed {
    struct freed *next;
    uint64_t address;
    uint64_t bytes;
    uint64_t stream_id;
    uint64_t ticket;
};

struct pool_memory {
    _Atomic unsigned references;
    uint64_t address;
};

struct pool *pool_open(int ordinal, bool is_default) {
    struct pool *pool = object_take(&pool_pool);
    if (pool == NULL) return NULL;
    pool->ordinal = ordinal;
    pool->device = process_devices[ordinal];
    pool->is_default = is_default;
    pthread_mutex_init(&pool->lock, NULL);
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    return pool;
}

struct pool *pool_default(int ordinal) {
    pthread_mutex_lock(&defaults_lock);
    if (default_pools[ordinal] == NULL) default_pools[ordinal] = pool_open(ordinal, true);
    if (current_pools[ordinal] == NULL) current_pools[ordinal] = default_pools[ordinal];
    struct pool *pool = default_pools[ordinal];
    pthread_mutex_unlock(&defaults_lock);
    return pool;
}

struct pool *pool_current(int ordinal) {
    pool_default(ordinal);
    pthread_mutex_lock(&defaults_lock);
    struct pool *pool = current_pools[ordinal];
    pthread_mutex_unlock(&defaults_lock);
    return pool;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + 511) & ~511ull;
}

static uint64_t granules(uint64_t bytes) {
    return (bytes + MEMORY_GRANULE_BYTES - 1) & ~(MEMORY_GRANULE_BYTES - 1);
}

/* Call with the pool's lock held. */
static void trim(struct pool *pool, uint64_t keep_bytes) {
    if (pool->reserved_bytes <= keep_bytes) return;
    uint64_t floor = granules(pool->used_bytes > keep_bytes ? pool->used_bytes : keep_bytes);
    if (pool->reserved_bytes <= floor) return;
    segment_discharge(process_segment, process_row, pool->device, pool->reserved_bytes - floor);
    pool->reserved_bytes = floor;
}

static bool pool_take(struct pool *pool, uint64_t bytes) {
    bool fits = true;
    pthread_mutex_lock(&pool->lock);
    uint64_t needed = granules(pool->used_bytes + bytes);
    if (pool->max_bytes != 0 && needed > pool->max_bytes) fits = false;
    if (fits && needed > pool->reserved_bytes) {
        uint64_t more = needed - pool->reserved_bytes;
        fits = segment_charge(process_segment, process_row, pool->device, more);
        if (fits) pool->reserved_bytes = needed;
    }
    if (fits) {
        pool->used_bytes += bytes;
        if (pool->used_bytes > pool->used_high_bytes) pool->used_high_bytes = pool->used_bytes;
        if (pool->reserved_bytes > pool->reserved_high_bytes)
            pool->reserved_high_bytes = pool->reserved_bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

static void pool_give(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes -= bytes;
    trim(pool, pool->release_threshold);
    pthread_mutex_unlock(&pool->lock);
}

CUresult pool_allocate(struct pool *pool, size_t bytes, CUdeviceptr *address, unsigned flags) {
    pthread_mutex_lock(&releases_lock);
    pthread_mutex_unlock(&releases_lock);
    if (!pool_take(pool, rounded(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = calloc(1, sizeof *range);
    unsigned char *storage = memory_storage_take(bytes);
    uint64_t start = address_take(rounded(bytes), 512, atomic_load(&pool->freed_last));
    if (range != NULL && storage != NULL && start != 0) {
        range->kind = RANGE_POOLED;
        range->start = start;
        range->bytes = bytes;
        range->storage = storage;
        range->device = pool->device;
        range->ordinal = pool->ordinal;
        range->id = memory_next_id();
        range->pool = pool;
        range->flags = flags;
        if (memory_insert(range)) {
            object_hold(pool);
            *address = start;
            memory_journal(JOURNAL_ALLOC, pool->device, bytes, "pool");
            return CUDA_SUCCESS;
        }
    }
    free(range);
    if (storage != NULL) memory_storage_give(storage, bytes);
    if (start != 0) address_give(start);
    pool_give(pool, rounded(bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void release_now(uint64_t address) {
    struct range *range = memory_remove(address, 1u << RANGE_POOLED);
    if (range == NULL) return;
    struct pool *pool = range->pool;
    pool_give(pool, rounded(range->bytes));
    atomic_store(&pool->freed_last, address);
    memory_journal(JOURNAL_FREE, range->device, range->bytes, "pool");
    memory_free_range(range);
    object_drop(&pool_pool, pool);
}

/* Takes a free off the list: by ticket, or else the newest of this size in this stream. */
static uint64_t take_freed(struct pool *pool, uint64_t ticket, uint64_t bytes, uint64_t stream_id) {
    uint64_t address = 0;
    pthread_mutex_lock(&pool->lock);
    for (struct freed **link = &pool->freed; *link != NULL; link = &(*link)->next) {
        struct freed *freed = *link;
        bool meant = ticket != 0 ? freed->ticket == ticket
                                 : freed->bytes == bytes && freed->stream_id == stream_id;
        if (!meant) continue;
        address = freed->address;
        *link = freed->next;
        free(freed);
        break;
    }
    pthread_mutex_unlock(&pool->lock);
    return address;
}

void pool_release(uint64_t address, uint64_t ticket) {
    struct range found;
    if (!memory_find(address, &found) || found.kind != RANGE_POOLED) return;
    pthread_mutex_lock(&releases_lock);
    if (take_freed(found.pool, ticket, 0, 0) != 0) release_now(address);
    pthread_mutex_unlock(&releases_lock);
}

void pool_memory_hold(struct pool_memory *memory) {
    atomic_fetch_add(&memory->references, 1);
}

void pool_memory_drop(struct pool_memory *memory) {
    if (atomic_fetch_sub(&memory->references, 1) != 1) return;
    release_now(memory->address);
    free(memory);
}

struct pool_memory *pool_memory_new(struct pool *pool, size_t bytes, CUdeviceptr *address) {
    struct pool_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) return NULL;
    if (pool_allocate(pool, bytes, address, POOL_MEMORY_OF_GRAPH) != CUDA_SUCCESS) {
        free(memory);
        return NULL;
    }
    memory->address = *address;
    atomic_store(&memory->references, 1);
    return memory;
}

void pool_set_current(int ordinal, struct pool *pool) {
    pool_default(ordinal);
    pthread_mutex_lock(&defaults_lock);
    current_pools[ordinal] = pool;
    pthread_mutex_unlock(&defaults_lock);
}

void pool_close(struct pool *pool) {
    pthread_mutex_lock(&defaults_lock);
    if (current_pools[pool->ordinal] == pool)
        current_pools[pool->ordinal] = default_pools[pool->ordinal];
    pthread_mutex_unlock(&defaults_lock);
    pthread_mutex_lock(&pool->lock);
    pool->release_threshold = 0;
    trim(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    object_drop(&pool_pool, pool);
}

void pool_trim(struct pool *pool, uint64_t keep_bytes) {
    pthread_mutex_lock(&pool->lock);
    trim(pool, keep_bytes);
    pthread_mutex_unlock(&pool->lock);
}

uint64_t pool_take_again(struct pool *pool, uint64_t bytes, uint64_t stream_id) {
    return take_freed(pool, 0, bytes, stream_id);
}

uint64_t pool_note_free(struct pool *pool, uint64_t address, uint64_t bytes, uint64_t stream_id) {
    static _Atomic uint64_t next_ticket = 1;
    struct freed *freed = calloc(1, sizeof *freed);
    if (freed == NULL) return 0;
    *freed = (struct freed){.address = address,
                            .bytes = bytes,
                            .stream_id = stream_id,
                            .ticket = atomic_fetch_add(&next_ticket, 1)};
    const uint64_t ticket = freed->ticket;
    pthread_mutex_lock(&pool->lock);
    freed->next = pool->freed;
    pool->freed = freed;
    pthread_mutex_unlock(&pool->lock);
    return ticket;
}

void pool_forget_free(struct pool *pool, uint64_t ticket) {
    take_freed(pool, ticket, 0, 0);
}
