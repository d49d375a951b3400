#define _GNU_SOURCE
#include "memory/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include "memory/address.h"
#include "memory/memory.h"
#include "process/process.h"

struct object_pool pool_pool = OBJECT_POOL(struct pool, 4096);
static struct pool *default_pools[SIM_DEVICES_MAX]; /* by ordinal; guarded by defaults_lock */
static struct pool *current_pools[SIM_DEVICES_MAX];
static struct pool *open_pools; /* not destroyed by their users */
static pthread_mutex_t defaults_lock = PTHREAD_MUTEX_INITIALIZER;

/* Call with defaults_lock held. */
static struct pool *open_pool(const struct pool_kind *kind) {
    struct pool *pool = object_take(&pool_pool);
    if (pool == NULL) return NULL;
    pool->ordinal = kind->ordinal;
    pool->device = process_devices[kind->ordinal];
    atomic_store(&pool->access_mask, 1u << pool->device);
    pool->is_default = kind->is_default;
    pool->imported = kind->imported;
    pool->fd = kind->fd;
    pool->max_bytes = kind->max_bytes;
    pool->handle_types = kind->handle_types;
    pool->rdma_capable = kind->rdma_capable;
    pthread_mutex_init(&pool->lock, NULL);
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    pool->next_open = open_pools;
    open_pools = pool;
    return pool;
}

struct pool *pool_open(const struct pool_kind *kind) {
    pthread_mutex_lock(&defaults_lock);
    struct pool *pool = open_pool(kind);
    pthread_mutex_unlock(&defaults_lock);
    return pool;
}

/* It takes memory where something is written. */
int pool_new_file(void) {
    const int fd = memfd_create("gpushare-sim-pool", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, POOL_FILE_BYTES) == 0) return fd;
    close(fd);
    return -1;
}

struct pool *pool_default(int ordinal) {
    pthread_mutex_lock(&defaults_lock);
    const struct pool_kind kind = {.ordinal = ordinal, .is_default = true, .fd = -1};
    if (default_pools[ordinal] == NULL) default_pools[ordinal] = open_pool(&kind);
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

void pool_set_current(int ordinal, struct pool *pool) {
    pool_default(ordinal);
    pthread_mutex_lock(&defaults_lock);
    current_pools[ordinal] = pool;
    pthread_mutex_unlock(&defaults_lock);
}

/* The lowest place in the pool's file that no region has. The first segment is for whoever exports
 * the pool. */
static uint64_t place_in_file(const struct pool *pool, uint64_t bytes) {
    uint64_t place = REGION_SEGMENT_BYTES;
    const struct region *region = pool->regions;
    while (region != NULL) {
        const uint64_t region_end = region->file_offset + region->bytes;
        const bool in_the_way = region->file_offset < place + bytes && region_end > place;
        if (in_the_way) place = region_end;
        region = in_the_way ? pool->regions : region->next;
    }
    return place;
}

static struct region *open_region(const struct pool *pool, uint64_t bytes) {
    if (pool->fd < 0) return region_open(bytes, -1, 0);
    const uint64_t place = place_in_file(pool, bytes);
    return place + bytes <= POOL_FILE_BYTES ? region_open(bytes, pool->fd, place) : NULL;
}

/* A region has room for more than is asked for, so that the pool can grow in place. */
struct region *pool_grow(struct pool *pool, uint64_t bytes) {
    const uint64_t total = process_segment->devices[pool->device].bytes_total;
    const uint64_t wanted = total < address_share() ? total : address_share();
    struct region *region =
        open_region(pool, region_whole_segments(wanted > bytes ? wanted : bytes));
    if (region == NULL) region = open_region(pool, region_whole_segments(bytes));
    if (region == NULL) return NULL;
    struct region **link = &pool->regions;
    while (*link != NULL)
        link = &(*link)->next;
    *link = region;
    return region;
}

bool pool_charge(struct pool *pool, struct region *region, uint64_t start, uint64_t bytes) {
    const uint64_t more = region_uncharged(region, start, bytes) * REGION_SEGMENT_BYTES;
    if (more == 0) return true;
    const uint64_t reserved = pool->reserved_bytes + more;
    const uint64_t before_last = reserved - REGION_SEGMENT_BYTES;
    if (pool->max_bytes != 0 && before_last >= pool->max_bytes) return false;
    if (!segment_charge(process_segment, process_row, pool->device, more)) return false;
    region_note_charged(region, start, bytes);
    pool->reserved_bytes = reserved;
    if (reserved > pool->reserved_high_bytes) pool->reserved_high_bytes = reserved;
    return true;
}

static void close_empty_regions(struct pool *pool) {
    struct region **link = &pool->regions;
    while (*link != NULL) {
        struct region *region = *link;
        if (!region_is_empty(region)) {
            link = &region->next;
            continue;
        }
        *link = region->next;
        region_close(region);
    }
}

/* Call with the pool's lock held. */
static void trim(struct pool *pool, uint64_t keep_bytes, bool unobserved) {
    if (pool->imported || pool->reserved_bytes <= keep_bytes) return;
    const uint64_t wanted = (pool->reserved_bytes - keep_bytes) / REGION_SEGMENT_BYTES;
    uint64_t given = 0;
    for (struct region *region = pool->regions; region != NULL; region = region->next)
        given += region_give_up(region, unobserved, wanted - given);
    if (given == 0) return;
    pool->reserved_bytes -= given * REGION_SEGMENT_BYTES;
    segment_discharge(process_segment, process_row, pool->device, given * REGION_SEGMENT_BYTES);
    close_empty_regions(pool);
}

void pool_trim(struct pool *pool, uint64_t keep_bytes) {
    pthread_mutex_lock(&pool->lock);
    trim(pool, keep_bytes, true);
    pthread_mutex_unlock(&pool->lock);
}

static struct block *first_block_from(const struct region *region, enum block_state state) {
    while (region != NULL && region->of_state[state].oldest == NULL)
        region = region->next;
    return region != NULL ? region->of_state[state].oldest : NULL;
}

struct block *pool_first_block(const struct pool *pool, enum block_state state) {
    return first_block_from(pool->regions, state);
}

struct block *pool_next_block(const struct block *block) {
    if (block->newer != NULL) return block->newer;
    return first_block_from(block->region->next, block->state);
}

void pool_settle(struct pool *pool) {
    trim(pool, 0, true);
    if (pool_first_block(pool, BLOCK_LIVE) != NULL || pool_first_block(pool, BLOCK_FREED) != NULL)
        return;
    while (pool->regions != NULL) {
        struct region *region = pool->regions;
        pool->regions = region->next;
        region_close(region);
    }
    if (pool->fd >= 0) close(pool->fd);
    pool->fd = -1;
}

bool pool_close(struct pool *pool) {
    if (atomic_exchange(&pool->object.live, 0) == 0) return false;
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
    pool_settle(pool);
    pthread_mutex_unlock(&pool->lock);
    object_drop(&pool_pool, pool);
    return true;
}

static bool is_covered(const struct block *block, const struct pool_wait *wait) {
    if (wait == NULL) return true;
    if (wait->legacy_context_id != 0 && block->waiting_context_id == wait->legacy_context_id)
        return true;
    const struct pool_order *at = &block->freed_at;
    bool covered = wait->place.stream_id == at->stream_id && wait->place.sequence >= at->sequence;
    for (size_t i = 0; i < wait->other_count && !covered; i++)
        covered =
            wait->others[i].stream_id == at->stream_id && wait->others[i].sequence >= at->sequence;
    return covered;
}

/* What is known to be over is free. Call with the pool's lock held. */
static void observe(struct pool *pool, const struct pool_wait *wait) {
    struct block *next = NULL;
    for (struct block *block = pool_first_block(pool, BLOCK_DONE); block != NULL; block = next) {
        next = pool_next_block(block);
        if (is_covered(block, wait)) region_forget(block);
    }
}

void pool_synchronised(const struct pool_wait *wait) {
    pthread_mutex_lock(&defaults_lock);
    for (struct pool *pool = open_pools; pool != NULL; pool = pool->next_open) {
        pthread_mutex_lock(&pool->lock);
        observe(pool, wait);
        trim(pool, pool->release_threshold, false);
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&defaults_lock);
}

bool pool_make_room(void) {
    uint64_t given = 0;
    pthread_mutex_lock(&defaults_lock);
    for (struct pool *pool = open_pools; pool != NULL; pool = pool->next_open) {
        pthread_mutex_lock(&pool->lock);
        const uint64_t before = pool->reserved_bytes;
        trim(pool, 0, true);
        given += before - pool->reserved_bytes;
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&defaults_lock);
    return given > 0;
}

uint64_t pool_segment_id(struct pool *pool, uint64_t address) {
    uint64_t id = 0;
    pthread_mutex_lock(&pool->lock);
    for (const struct region *r = pool->regions; r != NULL && id == 0; r = r->next)
        if (address >= r->start && address < region_end(r))
            id = r->segments[(address - r->start) / REGION_SEGMENT_BYTES].id;
    pthread_mutex_unlock(&pool->lock);
    return id;
}
