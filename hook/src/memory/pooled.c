#include "memory/pooled.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hold.h"

/* Guarded by LOCK_MEMORY. */
static LIST_HEAD(, pool) pools = LIST_HEAD_INITIALIZER(pools);
static uint64_t latest_free;

/* How many segments there are, so that who has none takes no lock. */
static _Atomic size_t there;

bool pooled_are_there(void) {
    return atomic_load_explicit(&there, memory_order_acquire) != 0;
}

/* ---- pools ------------------------------------------------------------------------------------
 */

static struct pool *find_pool(const void *handle) {
    struct pool *pool;
    LIST_FOREACH(pool, &pools, next)
    if (pool->handle == handle) break;
    return pool;
}

struct pool *pooled_add(const struct pool *wanted) {
    struct pool *added = malloc(sizeof *added);
    if (added == NULL) return NULL;
    *added = *wanted;
    added->holders = 1;
    added->name = wanted->handle;
    HOLD(LOCK_MEMORY);
    struct pool *pool = find_pool(wanted->handle); /* another thread was faster */
    if (pool != NULL) {
        free(added);
        pool->holders++;
        return pool;
    }
    LIST_INSERT_HEAD(&pools, added, next);
    return added;
}

struct pool *pooled_hold(const void *handle) {
    HOLD(LOCK_MEMORY);
    struct pool *pool = handle != NULL ? find_pool(handle) : NULL;
    if (pool != NULL) pool->holders++;
    return pool;
}

struct pool *pooled_drop(struct pool *pool) {
    HOLD(LOCK_MEMORY);
    if (--pool->holders > 0 || pool->handle != NULL || !LIST_EMPTY(&pool->segments)) return NULL;
    LIST_REMOVE(pool, next);
    if (pool->space.bytes > 0) space_close(&pool->space);
    return pool;
}

struct pool *pooled_leaves(const void *handle) {
    HOLD(LOCK_MEMORY);
    struct pool *pool = handle != NULL ? find_pool(handle) : NULL;
    if (pool == NULL) return NULL;
    pool->holders++;
    pool->handle = NULL;
    return pool;
}

void pooled_stays(struct pool *pool, void *handle) {
    HOLD(LOCK_MEMORY);
    pool->handle = handle;
}

bool pooled_is_there(const struct pool *pool) {
    const struct pool *each;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(each, &pools, next)
    if (each == pool) break;
    return each != NULL;
}

struct pool *pooled_next(const struct pool *pool) {
    HOLD(LOCK_MEMORY);
    struct pool *next = pool == NULL ? LIST_FIRST(&pools) : LIST_NEXT(pool, next);
    if (next != NULL) next->holders++;
    return next;
}

bool pooled_open(struct pool *pool, uint64_t address, uint64_t bytes) {
    HOLD(LOCK_MEMORY);
    return pool->space.bytes == 0 && space_open(&pool->space, address, bytes);
}

/* ---- allocating -------------------------------------------------------------------------------
 */

static uint64_t allocated_in(struct pool *pool, const struct extent *extent) {
    if (extent == NULL) return 0;
    if (pool->space.bytes_asked > pool->most_used) pool->most_used = pool->space.bytes_asked;
    return extent->address;
}

static bool is_same(struct stream_key left, struct stream_key right) {
    return left.context == right.context && left.stream == right.stream;
}

uint64_t pooled_take(struct pool *pool, uint64_t bytes, struct stream_key key) {
    HOLD(LOCK_MEMORY);
    if (pool->space.bytes == 0) return 0;
    return allocated_in(pool, space_take(&pool->space, bytes, key, blocks_next_id()));
}

static bool is_full(const struct pool *pool, uint64_t missing) {
    return pool->bytes_max != 0 &&
           pool->bytes_reserved + pool->bytes_claimed + missing > pool->bytes_max;
}

static uint64_t possible(const struct pool *pool, uint64_t missing) {
    return missing == UINT64_MAX || is_full(pool, missing) ? UINT64_MAX : missing;
}

uint64_t pooled_missing(struct pool *pool, uint64_t bytes, struct stream_key key) {
    HOLD(LOCK_MEMORY);
    return possible(pool, space_missing(&pool->space, bytes, key));
}

bool pooled_claim(struct pool *pool, uint64_t bytes, struct stream_key key, struct run *run) {
    HOLD(LOCK_MEMORY);
    if (!space_claim(&pool->space, bytes, key, run)) return false;
    const bool full = is_full(pool, run->bytes_missing);
    if (full)
        space_unclaim(&pool->space, run);
    else
        pool->bytes_claimed += run->bytes_missing;
    return !full;
}

bool pooled_run_is_lost(struct pool *pool, const struct run *run) {
    (void)pool;
    HOLD(LOCK_MEMORY);
    return space_run_is_lost(run);
}

void pooled_unclaim(struct pool *pool, const struct run *run) {
    HOLD(LOCK_MEMORY);
    pool->bytes_claimed -= run->bytes_missing;
    space_unclaim(&pool->space, run);
}

static bool enter_pages(struct segment **segments, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (pages_enter(&segments[i]->mapping)) continue;
        while (i-- > 0)
            pages_leave(&segments[i]->mapping);
        return false;
    }
    return true;
}

uint64_t pooled_settle(struct pool *pool, const struct run *run, struct segment **segments,
                       size_t count, uint64_t bytes, uint64_t claimed_bytes) {
    HOLD(LOCK_MEMORY);
    if (space_run_is_lost(run) || !enter_pages(segments, count)) return 0;
    pool->bytes_claimed -= run->bytes_missing;
    for (size_t i = 0; i < count; i++) {
        chunks_enter_locked(&segments[i]->chunk);
        LIST_INSERT_HEAD(&pool->segments, segments[i], next);
        pool->bytes_reserved += segments[i]->chunk.bytes;
        registry_count_locked(pool->device, KIND_POOLED, segments[i]->chunk.bytes, 0, 1);
    }
    atomic_fetch_add(&there, count);
    registry_unclaim_locked(pool->device, claimed_bytes);
    if (pool->bytes_reserved > pool->most_reserved) pool->most_reserved = pool->bytes_reserved;
    return allocated_in(pool, space_settle(&pool->space, run, bytes, blocks_next_id()));
}

/* ---- finding ----------------------------------------------------------------------------------
 */

static struct segment *segment_at(uint64_t address) {
    const struct mapping *mapping = pages_find(address);
    return mapping != NULL ? mapping->segment : NULL;
}

static struct extent *extent_at(uint64_t address, struct pool **pool) {
    const struct segment *segment = segment_at(address);
    if (segment == NULL) return NULL;
    *pool = segment->pool;
    return space_find(&segment->pool->space, address);
}

bool pooled_find(uint64_t address, struct allocated *found) {
    struct pool *pool;
    if (!pooled_are_there()) return false;
    HOLD(LOCK_MEMORY);
    const struct extent *extent = extent_at(address, &pool);
    if (extent == NULL || extent->state != EXTENT_USED ||
        address - extent->address >= extent->bytes_asked)
        return false;
    const uint64_t in_pool = address - pool->space.address;
    *found = (struct allocated){
        .address = extent->address,
        .bytes = extent->bytes_asked,
        .id = extent->id,
        .device = pool->device,
        .block_address = address - in_pool % SPACE_SLOT_BYTES,
        .block_bytes = SPACE_SLOT_BYTES,
        .is_pooled = true,
        .pool = pool->name,
    };
    return true;
}

bool pooled_cover(uint64_t address) {
    if (!pooled_are_there()) return false;
    HOLD(LOCK_MEMORY);
    return segment_at(address) != NULL;
}

uint8_t pooled_access(uint64_t address, int device) {
    if (device < 0 || device >= REGISTRY_DEVICES_MAX) return 0;
    HOLD(LOCK_MEMORY);
    const struct segment *segment = segment_at(address);
    return segment != NULL ? segment->pool->access[device] : 0;
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

uint64_t pooled_latest_free(void) {
    HOLD(LOCK_MEMORY);
    return latest_free;
}

/* What is allocated from there on, or (`id`) was when it was closed. */
static struct extent *allocation_at(uint64_t address, uint64_t id, struct pool **pool) {
    struct extent *extent = extent_at(address, pool);
    if (extent == NULL || extent->address != address || (id != 0 && extent->id != id)) return NULL;
    return extent->state == (id != 0 ? EXTENT_CLAIMED : EXTENT_USED) ? extent : NULL;
}

/* What was freed is nobody's where it was lost before. */
static void lose_again(struct pool *pool, uint64_t address, uint64_t bytes) {
    if (pool->lost == 0) return;
    for (uint64_t at = address; at < address + bytes;) {
        const struct segment *segment = segment_at(at);
        if (segment == NULL) return;
        if (segment->lost)
            space_lose(&pool->space, segment->mapping.address, segment->mapping.bytes);
        at = segment->mapping.address + segment->mapping.bytes;
    }
}

static struct freed use(struct freer *freer) {
    struct freed freed = {
        .freer = freer,
        .key = freer->key,
        .last = freer->last,
        .idle = freer->idle,
        .marks_used = freer->marks_used,
    };
    memcpy(freed.marks, freer->marks, sizeof freed.marks);
    freer->users++;
    return freed;
}

bool pooled_free(uint64_t address, struct stream_key key, struct pool **pool, struct freed *mark) {
    *mark = (struct freed){0};
    if (!pooled_are_there()) return false;
    HOLD(LOCK_MEMORY);
    struct extent *extent = allocation_at(address, 0, pool);
    if (extent == NULL) return false;
    const uint64_t bytes = extent->bytes;
    space_free(&(*pool)->space, extent, key, ++latest_free);
    lose_again(*pool, address, bytes);
    struct freer *freer = space_freer(&(*pool)->space, key);
    if (freer == NULL) return true; /* no host memory */
    *mark = use(freer);
    (*pool)->holders++;
    return true;
}

bool pooled_close(uint64_t address, struct allocated *closed) {
    struct pool *pool;
    if (!pooled_are_there()) return false;
    HOLD(LOCK_MEMORY);
    struct extent *extent = allocation_at(address, 0, &pool);
    if (extent == NULL) return false;
    extent->state = EXTENT_CLAIMED;
    *closed = (struct allocated){
        .address = address, .id = extent->id, .device = pool->device, .is_pooled = true};
    return true;
}

void pooled_reopen(const struct allocated *closed) {
    struct pool *pool;
    HOLD(LOCK_MEMORY);
    struct extent *extent = allocation_at(closed->address, closed->id, &pool);
    if (extent != NULL) extent->state = EXTENT_USED;
}

void pooled_free_closed(const struct allocated *closed) {
    struct pool *pool;
    HOLD(LOCK_MEMORY);
    struct extent *extent = allocation_at(closed->address, closed->id, &pool);
    if (extent == NULL) return;
    const uint64_t bytes = extent->bytes;
    space_free_now(&pool->space, extent);
    lose_again(pool, closed->address, bytes);
}

/* ---- what is over -----------------------------------------------------------------------------
 */

static bool is_of(const struct freer *freer, struct stream_key key) {
    return freer->key.context == key.context &&
           (key.stream == ALL_STREAMS || freer->key.stream == key.stream);
}

void pooled_over(struct stream_key key, uint64_t point) {
    struct pool *pool;
    struct freer *freer;
    if (!pooled_are_there()) return;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(pool, &pools, next)
    LIST_FOREACH(freer, &pool->space.freers, next)
    if (is_of(freer, key)) space_over(&pool->space, freer, point);
}

uint64_t pooled_lacking(struct pool *pool, uint64_t bytes, struct stream_key key,
                        struct freed *freed) {
    uint64_t missing;
    *freed = (struct freed){0};
    HOLD(LOCK_MEMORY);
    const struct extent *extent = space_lacking(&pool->space, bytes, key, &missing);
    if (extent == NULL) return possible(pool, missing);
    *freed = use(extent->freer);
    freed->wanted = extent->point;
    return possible(pool, missing);
}

bool pooled_follow(struct pool *pool, const struct freed *freed, uint64_t point,
                   struct stream_key key) {
    HOLD(LOCK_MEMORY);
    return space_follow(&pool->space, freed->freer, point, key, ++latest_free);
}

/* Events go with their context. */
static void context_ended(struct pool *pool, uint64_t generation) {
    struct freer *freer;
    LIST_FOREACH(freer, &pool->space.freers, next) {
        if (freer->key.context != generation) continue;
        freer->marks_used = 0;
        space_over(&pool->space, freer, UINT64_MAX);
    }
}

void pooled_context_ended(uint64_t generation, const void *context, int device, void *other) {
    struct pool *pool;
    struct segment *segment;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(pool, &pools, next) {
        context_ended(pool, generation);
        LIST_FOREACH(segment, &pool->segments, next)
        if (pool->device == device && segment->chunk.context == context)
            segment->chunk.context = other;
    }
}

/* What is free of it is nobody's from now on. */
void pooled_lost(const struct chunk *chunk) {
    HOLD(LOCK_MEMORY);
    struct segment *segment = chunk->mappings != NULL ? chunk->mappings->segment : NULL;
    if (segment == NULL || segment->lost) return;
    segment->lost = true;
    segment->pool->lost++;
    space_lose(&segment->pool->space, segment->mapping.address, segment->mapping.bytes);
}

size_t pooled_list_freed(struct pool *pool, size_t skipped, struct freed *list, size_t max) {
    size_t listed = 0;
    struct freer *freer;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(freer, &pool->space.freers, next) {
        if (listed == max) break;
        if (skipped > 0)
            skipped--;
        else
            list[listed++] = use(freer);
    }
    return listed;
}

bool pooled_has_freed(struct pool *pool, const struct stream_key *but) {
    const struct freer *freer;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(freer, &pool->space.freers, next)
    if (freer->extents > 0 && (but == NULL || !is_same(freer->key, *but))) break;
    return freer != NULL;
}

/* ---- giving memory back -----------------------------------------------------------------------
 */

struct vacancy {
    const struct pool *pool;
    uint64_t keep_bytes;
    struct segment *segment;
};

/* The first segment that lies wholly within the part, and may go. */
static bool look_at_free(const struct extent *extent, void *argument) {
    struct vacancy *vacancy = argument;
    const uint64_t end = extent->address + extent->bytes;
    for (uint64_t at = extent->address; at < end;) {
        struct segment *segment = segment_at(at);
        if (segment == NULL) return false;
        const uint64_t segment_end = segment->mapping.address + segment->mapping.bytes;
        const bool is_within = segment->mapping.address >= at && segment_end <= end;
        const uint64_t left = vacancy->pool->bytes_reserved - segment->mapping.bytes;
        if (is_within && !segment->lost && left >= vacancy->keep_bytes) {
            vacancy->segment = segment;
            return true;
        }
        at = segment_end;
    }
    return false;
}

static struct segment *vacate_lost(struct pool *pool, struct extent **extent) {
    struct segment *segment;
    if (pool->lost == 0) return NULL;
    LIST_FOREACH(segment, &pool->segments, next) {
        const struct mapping *mapping = &segment->mapping;
        if (!segment->lost) continue;
        *extent = space_vacate_lost(&pool->space, mapping->address, mapping->bytes);
        if (*extent != NULL) break;
    }
    return segment;
}

struct segment *pooled_vacate(struct pool *pool, uint64_t keep_bytes, struct extent **extent) {
    struct vacancy vacancy = {.pool = pool, .keep_bytes = keep_bytes};
    HOLD(LOCK_MEMORY);
    struct segment *lost = vacate_lost(pool, extent);
    if (lost != NULL) return lost;
    if (pool->space.bytes == 0 || pool->bytes_reserved <= keep_bytes ||
        !space_look(&pool->space, SPACE_SLOT_BYTES, look_at_free, &vacancy))
        return NULL;
    const struct mapping *mapping = &vacancy.segment->mapping;
    *extent = space_vacate(&pool->space, mapping->address, mapping->bytes);
    return *extent != NULL ? vacancy.segment : NULL;
}

void pooled_vacated(struct segment *segment, struct extent *extent) {
    struct pool *pool = segment->pool;
    const uint64_t bytes = segment->chunk.bytes;
    lock_take(LOCK_MEMORY);
    pages_leave(&segment->mapping);
    chunks_leave_locked(&segment->chunk);
    LIST_REMOVE(segment, next);
    atomic_fetch_sub(&there, 1);
    pool->bytes_reserved -= bytes;
    pool->lost -= segment->lost;
    registry_count_locked(pool->device, KIND_POOLED, bytes, segment->fixed ? bytes : 0, -1);
    space_vacated(&pool->space, extent);
    lock_release(LOCK_MEMORY);
    free(segment);
}

uint64_t pooled_kept_bytes(int device) {
    uint64_t bytes = 0;
    const struct pool *pool;
    if (!pooled_are_there()) return 0;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(pool, &pools, next)
    if (pool->device == device && pool->bytes_reserved > pool->space.bytes_asked)
        bytes += pool->bytes_reserved - pool->space.bytes_asked;
    return bytes;
}

/* ---- where it is ------------------------------------------------------------------------------
 */

static bool fix(struct segment *segment) {
    if (segment->fixed) return false;
    segment->fixed = true;
    chunks_fix_locked(&segment->chunk);
    registry_count_locked(segment->pool->device, KIND_POOLED, 0, segment->chunk.bytes, 1);
    return true;
}

bool pooled_fix(uint64_t address, bool *is_news) {
    struct pool *pool;
    struct segment *segment;
    *is_news = false;
    HOLD(LOCK_MEMORY);
    const struct extent *extent = extent_at(address, &pool);
    if (extent == NULL || extent->state != EXTENT_USED) return false;
    const uint64_t end = extent->address + extent->bytes;
    for (uint64_t at = extent->address; at < end;
         at = segment->mapping.address + segment->mapping.bytes) {
        segment = segment_at(at);
        if (segment == NULL || !chunks_is_here_locked(&segment->chunk)) return false;
        *is_news = fix(segment) || *is_news;
    }
    return true;
}

bool pooled_any_away(void) {
    const struct pool *pool;
    const struct segment *segment;
    if (!pooled_are_there()) return false;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(pool, &pools, next)
    LIST_FOREACH(segment, &pool->segments, next)
    if (!chunks_is_here_locked(&segment->chunk)) return true;
    return false;
}

size_t pooled_list_mapped(struct pool *pool, uint64_t after, struct block_range *ranges,
                          size_t max) {
    size_t listed = 0;
    HOLD(LOCK_MEMORY);
    for (uint64_t at = after != 0 ? after : pool->space.address;
         at - pool->space.address < pool->space.bytes && listed < max;) {
        const struct segment *segment = segment_at(at);
        if (segment != NULL)
            ranges[listed++] =
                (struct block_range){0, segment->mapping.address, segment->mapping.bytes};
        at = segment != NULL ? segment->mapping.address + segment->mapping.bytes
                             : at + SPACE_SLOT_BYTES;
    }
    return listed;
}

void pooled_after_fork(void) {
    struct pool *pool;
    struct segment *segment;
    while ((pool = LIST_FIRST(&pools)) != NULL) {
        while ((segment = LIST_FIRST(&pool->segments)) != NULL) {
            LIST_REMOVE(segment, next);
            free(segment);
        }
        LIST_REMOVE(pool, next);
        if (pool->space.bytes > 0) space_close(&pool->space);
        free(pool);
    }
    atomic_store(&there, 0);
}
