#define _GNU_SOURCE
#include "memory/pooled.h"

#include <stdlib.h>

#include "machine/journal.h"
#include "memory/descriptor.h"
#include "memory/memory.h"
#include "process/process.h"

#define ALIGNMENT 512u

/* What a stream may have. */
struct search {
    const struct pool *pool;
    const struct pooled_taker *taker;
    bool pending; /* also what it has to wait for */
};

static bool is_before(const struct pool_order *place, const struct pool_order *waits,
                      size_t count) {
    bool before = false;
    for (size_t i = 0; i < count && !before; i++)
        before = waits[i].stream_id == place->stream_id && waits[i].sequence >= place->sequence;
    return before;
}

/* The stream has freed it itself, or comes after the free. */
static bool follows(const struct search *search, const struct block *block) {
    const struct pooled_taker *taker = search->taker;
    if (block->freed_at.sequence == UINT64_MAX) return false;
    if (block->freed_at.stream_id == taker->stream_id) return true;
    return search->pool->reuse[0] != 0 &&
           is_before(&block->freed_at, taker->waits, taker->wait_count);
}

static bool is_free(const struct search *search, const struct block *block) {
    if (block->state == BLOCK_DONE && search->pool->reuse[1] != 0) return true;
    return block->state != BLOCK_LIVE && follows(search, block);
}

static bool is_usable(const struct block *block, const void *argument) {
    const struct search *search = argument;
    if (is_free(search, block)) return true;
    return search->pending && search->pool->reuse[2] != 0 && block->state != BLOCK_LIVE &&
           block->freed_at.sequence != UINT64_MAX;
}

/* Where the pool has enough, if need be with more segments. False: in none of its regions. */
static bool find(const struct search *search, uint64_t bytes, struct block_place *place) {
    for (int only_charged = 1; only_charged >= 0; only_charged--) {
        for (struct region *r = search->pool->regions; r != NULL; r = r->next)
            if (region_find(r, bytes, only_charged != 0, is_usable, search, place)) return true;
    }
    return false;
}

/* Call with the pool's lock held. */
static bool take(struct pool *pool, const struct search *search, uint64_t bytes,
                 struct block_place *place) {
    bool found = find(search, bytes, place);
    if (!found && !search->pending) {
        struct region *region = pool_grow(pool, bytes);
        found = region != NULL;
        if (found) *place = (struct block_place){.region = region, .start = region->start};
    }
    return found && pool_charge(pool, place->region, place->start, bytes);
}

/* The stream has to wait for this place: of each other stream, for its last one. False: of too
 * many. */
static bool note_place(struct pooled_taker *taker, const struct pool_order *place) {
    size_t i = 0;
    while (i < taker->held_count && taker->held_by[i].stream_id != place->stream_id)
        i++;
    if (i == POOLED_WAITS_MAX) return false;
    if (i == taker->held_count) taker->held_by[taker->held_count++] = *place;
    if (place->sequence > taker->held_by[i].sequence) taker->held_by[i].sequence = place->sequence;
    return true;
}

/* False: it would have to wait for too many streams. */
static bool note_held(const struct block_place *place, uint64_t bytes, const struct search *search,
                      struct pooled_taker *taker) {
    taker->held_count = 0;
    for (const struct block *block = region_block_at(place);
         block != NULL && block->start < place->start + bytes; block = block->next)
        if (!is_free(search, block) && !note_place(taker, &block->freed_at)) return false;
    return true;
}

static struct range *range_of(struct pool *pool, const struct region *region, struct block *block) {
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL) return NULL;
    range->kind = RANGE_POOLED;
    range->start = block->start;
    range->bytes = block->bytes_asked;
    range->storage = region_bytes_at(region, block->start);
    if (region->fd >= 0) range->file_offset = region->file_offset + (block->start - region->start);
    range->device = pool->device;
    range->ordinal = pool->ordinal;
    range->id = memory_next_id();
    range->pool = pool;
    range->block = block;
    return range;
}

static void drop_ranges(struct range *gone) {
    while (gone != NULL) {
        struct range *range = gone;
        gone = range->next_removed;
        object_drop(&pool_pool, range->pool);
        memory_free_range(range);
    }
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* A live block, and its range in place of those that were freed there. Call with the pool's lock
 * held. */
static bool put(struct pool *pool, const struct block_place *place, uint64_t bytes) {
    struct block *block = calloc(1, sizeof *block);
    if (block == NULL) return false;
    block->start = place->start;
    block->bytes = rounded(bytes);
    block->bytes_asked = bytes;
    struct range *range = range_of(pool, place->region, block);
    struct range *gone = NULL;
    if (range == NULL || !memory_take_over(range, block_end(block), &gone)) {
        free(range);
        free(block);
        return false;
    }
    object_hold(pool);
    region_put(place, block);
    drop_ranges(gone);
    return true;
}

/* Call with the pool's lock held. */
static uint64_t allocate(struct pool *pool, uint64_t bytes, struct pooled_taker *taker) {
    struct search search = {.pool = pool, .taker = taker};
    struct block_place place;
    bool taken = take(pool, &search, rounded(bytes), &place);
    if (!taken) {
        search.pending = true;
        taken = take(pool, &search, rounded(bytes), &place);
    }
    if (!taken || !note_held(&place, rounded(bytes), &search, taker)) return 0;
    if (!put(pool, &place, bytes)) return 0;
    pool->used_bytes += bytes;
    if (pool->used_bytes > pool->used_high_bytes) pool->used_high_bytes = pool->used_bytes;
    return place.start;
}

static uint64_t allocate_locked(struct pool *pool, uint64_t bytes, struct pooled_taker *taker) {
    pthread_mutex_lock(&pool->lock);
    const uint64_t start = allocate(pool, bytes, taker);
    pthread_mutex_unlock(&pool->lock);
    return start;
}

CUresult pooled_allocate(struct pool *pool, size_t bytes, struct pooled_taker *taker,
                         CUdeviceptr *address) {
    if (bytes > process_segment->devices[pool->device].bytes_total) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t start = allocate_locked(pool, bytes, taker);
    if (start == 0) {
        descriptor_look(); /* they may have held memory, and be closed */
        start = allocate_locked(pool, bytes, taker);
    }
    if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = start;
    memory_journal(JOURNAL_ALLOC, pool->device, bytes, "pool");
    return CUDA_SUCCESS;
}

bool pooled_import(struct pool *pool, uint64_t file_offset, size_t bytes, CUdeviceptr *address) {
    pthread_mutex_lock(&pool->lock);
    struct region *region = region_of_others(bytes, pool->fd, file_offset);
    if (region != NULL) {
        *address = region->start + file_offset % REGION_SEGMENT_BYTES;
        const struct block_place place = {.region = region, .start = *address};
        if (put(pool, &place, bytes)) {
            region->next = pool->regions;
            pool->regions = region;
        } else {
            region_close(region);
            region = NULL;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return region != NULL;
}

/* An allocation that is to be freed. */
struct claim {
    const struct pool *pool;
    uint64_t address;
    struct block *block;
};

static bool claim_range(struct range *range, void *argument) {
    struct claim *claim = argument;
    if (range->start != claim->address || range->pool != claim->pool || range->freed) return false;
    claim->block = range->block;
    if (claim->block != NULL) range->freed = true;
    return false;
}

static bool unclaim_range(struct range *range, void *argument) {
    (void)argument;
    range->freed = false;
    return false;
}

/* Call with the pool's lock held. */
static void note_used(struct pool *pool, const struct block *block, bool used) {
    pool->used_bytes += used ? block->bytes_asked : -block->bytes_asked;
    memory_journal(used ? JOURNAL_ALLOC : JOURNAL_FREE, pool->device, block->bytes_asked, "pool");
}

uint64_t pooled_free(struct pool *pool, uint64_t address, uint64_t stream_id,
                     uint64_t waiting_context_id) {
    static _Atomic uint64_t next_ticket = 1;
    uint64_t ticket = 0;
    pthread_mutex_lock(&pool->lock);
    struct claim claim = {.pool = pool, .address = address};
    memory_for_each(address, 1, claim_range, &claim);
    struct block *block = claim.block;
    if (block != NULL) {
        ticket = atomic_fetch_add(&next_ticket, 1);
        region_set_state(block, BLOCK_FREED);
        block->ticket = ticket;
        block->freed_at = (struct pool_order){stream_id, UINT64_MAX};
        block->waiting_context_id = waiting_context_id;
        if (!pool->imported) note_used(pool, block, false);
    }
    pthread_mutex_unlock(&pool->lock);
    return ticket;
}

/* The executor comes to the oldest frees first. NULL: the block is done, or somebody has it. */
static struct block *freed_by(const struct pool *pool, uint64_t ticket) {
    struct block *block = pool_first_block(pool, BLOCK_FREED);
    while (block != NULL && block->ticket != ticket)
        block = pool_next_block(block);
    return block;
}

/* One of the newest, as a rule. Where a done block was split, its parts stand side by side. */
static bool place_freed(struct block *newest, uint64_t ticket, uint64_t sequence) {
    bool placed = false;
    for (struct block *block = newest; block != NULL; block = block->older) {
        if (block->ticket == ticket) {
            block->freed_at.sequence = sequence;
            placed = true;
        } else if (placed) {
            break;
        }
    }
    return placed;
}

void pooled_place_free(struct pool *pool, uint64_t ticket, uint64_t sequence) {
    pthread_mutex_lock(&pool->lock);
    bool placed = false;
    for (struct region *region = pool->regions; region != NULL && !placed; region = region->next)
        placed = place_freed(region->of_state[BLOCK_FREED].newest, ticket, sequence) ||
                 place_freed(region->of_state[BLOCK_DONE].newest, ticket, sequence);
    pthread_mutex_unlock(&pool->lock);
}

void pooled_keep(struct pool *pool, uint64_t ticket) {
    pthread_mutex_lock(&pool->lock);
    struct block *block = freed_by(pool, ticket);
    if (block != NULL) {
        region_set_state(block, BLOCK_LIVE);
        block->ticket = 0;
        memory_for_each(block->start, 1, unclaim_range, NULL);
        if (!pool->imported) note_used(pool, block, true);
    }
    pthread_mutex_unlock(&pool->lock);
}

/* Call with the pool's lock held. */
static struct range *release(const struct pool *pool, struct block *block) {
    struct range *range = memory_remove(block->start, 1u << RANGE_POOLED);
    region_set_state(block, BLOCK_DONE);
    if (!pool->imported) region_wipe(block->region, block->start, block->bytes);
    return range;
}

/* Nobody has a region of another process's bytes any more. Call with the pool's lock held. */
static void leave(struct pool *pool) {
    struct region **link = &pool->regions;
    while (*link != NULL) {
        struct region *region = *link;
        if (region->blocks->state != BLOCK_DONE) {
            link = &region->next;
            continue;
        }
        *link = region->next;
        region_close(region);
    }
}

void pooled_release(struct pool *pool, uint64_t ticket) {
    struct range *gone = NULL;
    pthread_mutex_lock(&pool->lock);
    struct block *block = freed_by(pool, ticket);
    if (block != NULL) gone = release(pool, block);
    if (pool->imported) leave(pool);
    if (pool->closed) pool_settle(pool);
    pthread_mutex_unlock(&pool->lock);
    drop_ranges(gone);
}
