#define _GNU_SOURCE
#include "memory/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine/journal.h"
#include "memory/address.h"
#include "memory/memory.h"
#include "process/process.h"

#define FILE_BYTES (1ll << 42) /* places for all that a pool will ever allocate */

struct object_pool pool_pool = OBJECT_POOL(struct pool, 4096);
static struct pool *default_pools[SIM_DEVICES_MAX]; /* by ordinal; guarded by defaults_lock */
static struct pool *current_pools[SIM_DEVICES_MAX];
static struct pool *open_pools; /* not destroyed by their users */
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
    uint64_t sequence; /* its place there; UINT64_MAX: not known yet */
    uint64_t ticket;
};

/* Call with defaults_lock held. */
static struct pool *open_pool(int ordinal, bool is_default) {
    struct pool *pool = object_take(&pool_pool);
    if (pool == NULL) return NULL;
    pool->ordinal = ordinal;
    pool->fd = -1;
    atomic_store(&pool->access_mask, 1u << process_devices[ordinal]);
    pool->device = process_devices[ordinal];
    pool->is_default = is_default;
    pthread_mutex_init(&pool->lock, NULL);
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    pool->next_open = open_pools;
    open_pools = pool;
    return pool;
}

struct pool *pool_open(int ordinal, bool is_default) {
    pthread_mutex_lock(&defaults_lock);
    struct pool *pool = open_pool(ordinal, is_default);
    pthread_mutex_unlock(&defaults_lock);
    return pool;
}

/* It takes memory where something is written. The first granule is for whoever exports it. */
bool pool_share(struct pool *pool) {
    pool->fd = memfd_create("gpushare-sim-pool", MFD_CLOEXEC);
    pool->file_next = MEMORY_GRANULE_BYTES;
    return pool->fd >= 0 && ftruncate(pool->fd, FILE_BYTES) == 0;
}

struct pool *pool_default(int ordinal) {
    pthread_mutex_lock(&defaults_lock);
    if (default_pools[ordinal] == NULL) default_pools[ordinal] = open_pool(ordinal, true);
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

/* Call with the pool's lock held. */
static void give_up_rest(struct pool *pool) {
    trim(pool, 0);
    if (pool->used_bytes > 0 || pool->fd < 0) return;
    close(pool->fd);
    pool->fd = -1;
}

static void pool_give(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes -= bytes;
    if (pool->closed) give_up_rest(pool);
    pthread_mutex_unlock(&pool->lock);
}

/* Bytes in the pool's own file where it has one, so that other processes can have them. */
static unsigned char *take_storage(struct pool *pool, size_t bytes, uint64_t *file_offset) {
    *file_offset = 0;
    if (pool->fd < 0) return memory_storage_take(bytes);
    pthread_mutex_lock(&pool->lock);
    *file_offset = pool->file_next;
    pool->file_next += granules(bytes);
    pthread_mutex_unlock(&pool->lock);
    return memory_storage_of_file(pool->fd, *file_offset, bytes);
}

static void give_storage(unsigned char *storage, size_t bytes, uint64_t file_offset) {
    if (storage == NULL) return;
    if (file_offset != 0)
        memory_storage_leave_file(storage, bytes);
    else
        memory_storage_give(storage, bytes);
}

/* The storage is the range's from then on; on failure it is given back. */
static bool place(struct pool *pool, size_t bytes, unsigned char *storage, uint64_t file_offset,
                  struct graph_memory *graph, CUdeviceptr *address) {
    struct range *range = calloc(1, sizeof *range);
    uint64_t start = address_take(rounded(bytes), 512, atomic_load(&pool->freed_last));
    if (range != NULL && storage != NULL && start != 0) {
        range->kind = RANGE_POOLED;
        range->start = start;
        range->bytes = bytes;
        range->storage = storage;
        range->file_offset = file_offset;
        range->device = pool->device;
        range->ordinal = pool->ordinal;
        range->id = memory_next_id();
        range->pool = pool;
        range->graph = graph;
        if (memory_insert(range)) {
            object_hold(pool);
            *address = start;
            return true;
        }
    }
    free(range);
    give_storage(storage, bytes, file_offset);
    if (start != 0) address_give(start);
    return false;
}

bool pool_place(struct pool *pool, size_t bytes, struct graph_memory *graph, CUdeviceptr *address) {
    return place(pool, bytes, memory_storage_take(bytes), 0, graph, address);
}

bool pool_place_import(struct pool *pool, uint64_t file_offset, size_t bytes,
                       CUdeviceptr *address) {
    unsigned char *storage = memory_storage_of_file(pool->fd, file_offset, bytes);
    return place(pool, bytes, storage, file_offset, NULL, address);
}

CUresult pool_allocate(struct pool *pool, size_t bytes, CUdeviceptr *address) {
    pthread_mutex_lock(&releases_lock);
    pthread_mutex_unlock(&releases_lock);
    if (!pool_take(pool, rounded(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t file_offset = 0;
    unsigned char *storage = take_storage(pool, bytes, &file_offset);
    if (place(pool, bytes, storage, file_offset, NULL, address)) {
        memory_journal(JOURNAL_ALLOC, pool->device, bytes, "pool");
        return CUDA_SUCCESS;
    }
    pool_give(pool, rounded(bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void pool_displace(uint64_t address) {
    struct range *range = memory_remove(address, 1u << RANGE_POOLED);
    if (range == NULL) return;
    struct pool *pool = range->pool;
    memory_free_range(range);
    object_drop(&pool_pool, pool);
}

static void release_now(uint64_t address) {
    struct range *range = memory_remove(address, 1u << RANGE_POOLED);
    if (range == NULL) return;
    struct pool *pool = range->pool;
    if (!pool->imported) {
        if (pool->fd >= 0) memory_storage_punch(pool->fd, range->file_offset, range->bytes);
        pool_give(pool, rounded(range->bytes));
        memory_journal(JOURNAL_FREE, range->device, range->bytes, "pool");
    }
    atomic_store(&pool->freed_last, address);
    memory_free_range(range);
    object_drop(&pool_pool, pool);
}

/* Takes the first free that is meant off the list; its address. Call with the pool's lock held. */
static uint64_t take_off(struct freed **link) {
    struct freed *freed = *link;
    if (freed == NULL) return 0;
    uint64_t address = freed->address;
    *link = freed->next;
    free(freed);
    return address;
}

static struct freed **by_ticket(struct pool *pool, uint64_t ticket) {
    struct freed **link = &pool->freed;
    while (*link != NULL && (*link)->ticket != ticket)
        link = &(*link)->next;
    return link;
}

static uint64_t take_ticket(struct pool *pool, uint64_t ticket) {
    pthread_mutex_lock(&pool->lock);
    uint64_t address = take_off(by_ticket(pool, ticket));
    pthread_mutex_unlock(&pool->lock);
    return address;
}

void pool_release(uint64_t address, uint64_t ticket) {
    struct range found;
    if (!memory_find(address, &found) || found.kind != RANGE_POOLED) return;
    pthread_mutex_lock(&releases_lock);
    if (take_ticket(found.pool, ticket) != 0) release_now(address);
    pthread_mutex_unlock(&releases_lock);
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
    struct pool **link = &open_pools;
    while (*link != NULL && *link != pool)
        link = &(*link)->next_open;
    if (*link == pool) *link = pool->next_open;
    pthread_mutex_unlock(&defaults_lock);
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    give_up_rest(pool);
    pthread_mutex_unlock(&pool->lock);
    object_drop(&pool_pool, pool);
}

void pool_trim(struct pool *pool, uint64_t keep_bytes) {
    pthread_mutex_lock(&pool->lock);
    trim(pool, keep_bytes);
    pthread_mutex_unlock(&pool->lock);
}

void pool_synchronised(void) {
    pthread_mutex_lock(&defaults_lock);
    for (struct pool *pool = open_pools; pool != NULL; pool = pool->next_open)
        pool_trim(pool, pool->release_threshold);
    pthread_mutex_unlock(&defaults_lock);
}

/* The stream has freed it itself, or comes after the free. */
static bool follows(const struct freed *freed, uint64_t stream_id, const struct pool_order *waits,
                    size_t count) {
    if (freed->stream_id == stream_id) return true;
    for (size_t i = 0; i < count; i++) {
        if (waits[i].stream_id == freed->stream_id && waits[i].sequence >= freed->sequence)
            return true;
    }
    return false;
}

uint64_t pool_take_again(struct pool *pool, uint64_t bytes, uint64_t stream_id,
                         const struct pool_order *waits, size_t count) {
    pthread_mutex_lock(&pool->lock);
    if (pool->reuse[0] == 0) count = 0;
    struct freed **link = &pool->freed;
    while (*link != NULL && ((*link)->bytes != bytes || !follows(*link, stream_id, waits, count)))
        link = &(*link)->next;
    uint64_t address = take_off(link);
    pthread_mutex_unlock(&pool->lock);
    return address;
}

uint64_t pool_take_pending(struct pool *pool, uint64_t bytes, struct pool_order *place) {
    uint64_t address = 0;
    pthread_mutex_lock(&pool->lock);
    struct freed **link = &pool->freed;
    while (*link != NULL && ((*link)->bytes != bytes || (*link)->sequence == UINT64_MAX))
        link = &(*link)->next;
    if (*link != NULL && pool->reuse[2] != 0) {
        *place = (struct pool_order){(*link)->stream_id, (*link)->sequence};
        address = take_off(link);
    }
    pthread_mutex_unlock(&pool->lock);
    return address;
}

bool pool_is_freed(struct pool *pool, uint64_t address) {
    pthread_mutex_lock(&pool->lock);
    const struct freed *freed = pool->freed;
    while (freed != NULL && freed->address != address)
        freed = freed->next;
    pthread_mutex_unlock(&pool->lock);
    return freed != NULL;
}

uint64_t pool_note_free(struct pool *pool, uint64_t address, uint64_t bytes, uint64_t stream_id) {
    static _Atomic uint64_t next_ticket = 1;
    struct freed *freed = calloc(1, sizeof *freed);
    if (freed == NULL) return 0;
    *freed = (struct freed){.address = address,
                            .bytes = bytes,
                            .stream_id = stream_id,
                            .sequence = UINT64_MAX,
                            .ticket = atomic_fetch_add(&next_ticket, 1)};
    const uint64_t ticket = freed->ticket;
    pthread_mutex_lock(&pool->lock);
    freed->next = pool->freed;
    pool->freed = freed;
    pthread_mutex_unlock(&pool->lock);
    return ticket;
}

void pool_forget_free(struct pool *pool, uint64_t ticket) {
    take_ticket(pool, ticket);
}

void pool_place_free(struct pool *pool, uint64_t ticket, uint64_t sequence) {
    pthread_mutex_lock(&pool->lock);
    struct freed *freed = *by_ticket(pool, ticket);
    if (freed != NULL) freed->sequence = sequence;
    pthread_mutex_unlock(&pool->lock);
}
