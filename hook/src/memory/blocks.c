#include "memory/blocks.h"

#include <stdatomic.h>

#include "base/array.h"
#include "base/hold.h"
#include "memory/registry.h"
#include "memory/slab.h"

/* Guarded by LOCK_MEMORY, like what was put off. */
static TAILQ_HEAD(, block) blocks = TAILQ_HEAD_INITIALIZER(blocks);
static LIST_HEAD(, block) with_room = LIST_HEAD_INITIALIZER(with_room);
static struct allocated *put_off;
static size_t put_off_used, put_off_room;

/* How much there is of either, so that who has nothing of ours takes no lock. */
static _Atomic size_t blocks_there, put_off_there;

static _Atomic uint64_t last_id;

uint64_t blocks_next_id(void) {
    return atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
}

/* ---- finding; with LOCK_MEMORY held -----------------------------------------------------------
 */

static struct block *block_around(uint64_t address) {
    const struct mapping *mapping = pages_find(address);
    return mapping != NULL ? mapping->block : NULL;
}

static struct allocated allocated_in(const struct block *block, uint64_t address, uint64_t bytes,
                                     uint64_t id) {
    return (struct allocated){
        .address = address,
        .bytes = bytes,
        .id = id,
        .context = block->context,
        .generation = block->generation,
        .device = block->device,
        .block_address = block->address,
        .block_bytes = block->bytes,
    };
}

/* The allocation in which the address lies, and its flag `closing`; NULL for none. */
static bool *find_allocation(uint64_t address, struct allocated *found) {
    struct block *block = block_around(address);
    if (block == NULL) return NULL;
    if (block->slab == NULL) {
        *found = allocated_in(block, block->address, block->bytes_requested, block->id);
        return address - block->address < block->bytes_requested ? &block->closing : NULL;
    }
    uint64_t start;
    struct slab_entry *entry = slab_find(block->slab, address - block->address, &start);
    if (entry == NULL || block->closing) return NULL;
    *found = allocated_in(block, block->address + start, entry->bytes, entry->id);
    return &entry->closing;
}

/* The same for an allocation that was found before and may be gone since. */
static bool *find_again(const struct allocated *known) {
    struct allocated found;
    bool *closing = find_allocation(known->address, &found);
    return closing != NULL && found.id == known->id ? closing : NULL;
}

/* ---- making and finding -----------------------------------------------------------------------
 */

static void note_room(struct block *slab, bool has_room) {
    if (slab->has_room == has_room) return;
    slab->has_room = has_room;
    if (has_room)
        LIST_INSERT_HEAD(&with_room, slab, with_room);
    else
        LIST_REMOVE(slab, with_room);
}

/* All of its pages, or none. */
static bool enter_pages(struct block *block) {
    for (size_t i = 0; i < block->piece_count; i++) {
        if (pages_enter(&block->pieces[i].mapping)) continue;
        while (i-- > 0)
            pages_leave(&block->pieces[i].mapping);
        return false;
    }
    return true;
}

bool blocks_add(struct block *block, uint32_t small_bytes) {
    uint64_t offset;
    if (small_bytes > 0) {
        block->slab = calloc(1, sizeof *block->slab);
        if (block->slab == NULL) return false;
    }
    HOLD(LOCK_MEMORY);
    if (!enter_pages(block)) {
        free(block->slab);
        return false;
    }
    block->id = blocks_next_id();
    if (block->slab != NULL) {
        slab_take(block->slab, small_bytes, block->id, &offset);
        note_room(block, true);
    }
    for (size_t i = 0; i < block->piece_count; i++)
        chunks_enter_locked(&block->pieces[i].chunk);
    TAILQ_INSERT_TAIL(&blocks, block, next);
    atomic_fetch_add(&blocks_there, 1);
    registry_count_locked(block->device, KIND_PLAIN, block->bytes, 0, 1);
    registry_unclaim_locked(block->device, block->bytes);
    return true;
}

bool blocks_take_small(uint64_t generation, uint32_t bytes, uint64_t *address) {
    bool taken = false;
    struct block *block, *next;
    HOLD(LOCK_MEMORY);
    for (block = LIST_FIRST(&with_room); block != NULL && !taken; block = next) {
        uint64_t offset;
        next = LIST_NEXT(block, with_room);
        if (block->generation != generation || block->closing) continue;
        taken = slab_take(block->slab, bytes, blocks_next_id(), &offset);
        if (taken) *address = block->address + offset;
        note_room(block, block->slab->units_used < SLAB_UNITS);
    }
    return taken;
}

bool blocks_are_there(void) {
    return atomic_load_explicit(&blocks_there, memory_order_acquire) != 0;
}

bool blocks_find(uint64_t address, struct allocated *found) {
    if (!blocks_are_there()) return false;
    HOLD(LOCK_MEMORY);
    const bool *closing = find_allocation(address, found);
    return closing != NULL && !*closing;
}

bool blocks_cover(uint64_t address) {
    if (!blocks_are_there()) return false;
    HOLD(LOCK_MEMORY);
    return block_around(address) != NULL;
}

size_t blocks_list(int device, uint64_t after, struct block_range *ranges, size_t max) {
    size_t listed = 0;
    const struct block *block;
    HOLD(LOCK_MEMORY);
    TAILQ_FOREACH(block, &blocks, next) {
        if (listed == max) break;
        if (block->id > after && block->device == device)
            ranges[listed++] = (struct block_range){block->id, block->address, block->bytes};
    }
    return listed;
}

/* ---- pieces -----------------------------------------------------------------------------------
 */

static bool stays(const struct block *block) {
    return block->fixed || block->shares > 0;
}

bool blocks_fix(uint64_t address, bool *is_news) {
    HOLD(LOCK_MEMORY);
    struct block *block = block_around(address);
    if (block == NULL) return false;
    for (size_t i = 0; i < block->piece_count; i++)
        if (!chunks_is_here_locked(&block->pieces[i].chunk)) return false;
    *is_news = !stays(block);
    if (block->fixed) return true;
    for (size_t i = 0; i < block->piece_count; i++)
        chunks_fix_locked(&block->pieces[i].chunk);
    block->fixed = true;
    if (*is_news) registry_count_locked(block->device, KIND_PLAIN, 0, block->bytes, 1);
    return true;
}

bool blocks_is_fixed(uint64_t address) {
    HOLD(LOCK_MEMORY);
    const struct block *block = block_around(address);
    return block != NULL && block->fixed;
}

static void set_shared(struct block *block, bool shared) {
    for (size_t i = 0; i < block->piece_count; i++)
        chunks_share_locked(&block->pieces[i].chunk, shared);
    if (!block->fixed)
        registry_count_locked(block->device, KIND_PLAIN, 0, block->bytes, shared ? 1 : -1);
}

/* A host copy that a chunk still has would be older than what the others write. */
static bool is_here_alone(const struct block *block) {
    for (size_t i = 0; i < block->piece_count; i++) {
        const struct chunk *chunk = &block->pieces[i].chunk;
        if (chunk->state != CHUNK_RESIDENT || chunk->handle == 0) return false;
    }
    return true;
}

bool blocks_share(uint64_t address, uint64_t *id) {
    HOLD(LOCK_MEMORY);
    struct block *block = block_around(address);
    if (block == NULL || block->closing || (*id != 0 && block->id != *id) || !is_here_alone(block))
        return false;
    *id = block->id;
    if (block->shares++ == 0) set_shared(block, true);
    return true;
}

/* One of its chunks; NULL where one is in another state than those that never left. */
static struct chunk *copied_one(struct block *block) {
    struct chunk *copied = NULL;
    for (size_t i = 0; i < block->piece_count; i++) {
        struct chunk *chunk = &block->pieces[i].chunk;
        if (chunk->state != CHUNK_RESIDENT && !chunk->copied) return NULL;
        if (chunk->copied) copied = chunk;
    }
    return copied;
}

void *blocks_end_copy(uint64_t address, uint64_t *bytes) {
    HOLD(LOCK_MEMORY);
    struct block *block = block_around(address);
    struct chunk *copied = block != NULL ? copied_one(block) : NULL;
    if (copied == NULL) return NULL;
    *bytes = copied->bytes;
    return chunks_confirm_locked(copied);
}

bool blocks_unshare(uint64_t address, uint64_t id) {
    HOLD(LOCK_MEMORY);
    struct block *block = block_around(address);
    if (block == NULL || block->id != id || --block->shares > 0) return false;
    set_shared(block, false);
    return !block->fixed;
}

void blocks_visit(uint64_t address, void (*look)(const struct chunk *chunk, void *argument),
                  void *argument) {
    HOLD(LOCK_MEMORY);
    const struct block *block = block_around(address);
    for (size_t i = 0; block != NULL && i < block->piece_count; i++)
        look(&block->pieces[i].chunk, argument);
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

bool blocks_close(uint64_t address, struct allocated *closed) {
    if (!blocks_are_there()) return false;
    HOLD(LOCK_MEMORY);
    bool *closing = find_allocation(address, closed);
    const bool closes = closing != NULL && !*closing && closed->address == address;
    if (closes) *closing = true;
    return closes;
}

void blocks_reopen(const struct allocated *closed) {
    HOLD(LOCK_MEMORY);
    bool *closing = find_again(closed);
    if (closing != NULL) *closing = false;
}

static bool has_other_empty_slab(const struct block *than) {
    const struct block *other;
    LIST_FOREACH(other, &with_room, with_room)
    if (other != than && other->generation == than->generation && !other->closing &&
        other->slab->units_used == 0)
        return true;
    return false;
}

struct block *blocks_end(const struct allocated *closed) {
    struct block *block = NULL;
    HOLD(LOCK_MEMORY);
    if (find_again(closed) != NULL) {
        block = block_around(closed->address);
        if (block->slab != NULL) {
            slab_give(block->slab, closed->address - block->address);
            note_room(block, true);
            if (block->slab->units_used > 0 || !has_other_empty_slab(block)) block = NULL;
        }
        if (block != NULL) block->closing = true;
    }
    return block;
}

void blocks_remove(struct block *block) {
    lock_take(LOCK_MEMORY);
    for (size_t i = 0; i < block->piece_count; i++) {
        pages_leave(&block->pieces[i].mapping);
        chunks_leave_locked(&block->pieces[i].chunk);
    }
    if (block->slab != NULL) note_room(block, false);
    TAILQ_REMOVE(&blocks, block, next);
    atomic_fetch_sub(&blocks_there, 1);
    registry_count_locked(block->device, KIND_PLAIN, block->bytes, stays(block) ? block->bytes : 0,
                          -1);
    lock_release(LOCK_MEMORY);
    free(block->slab);
    free(block);
}

static void forget_put_off_of(uint64_t generation) {
    size_t kept = 0;
    for (size_t i = 0; i < put_off_used; i++) {
        if (put_off[i].generation != generation || put_off[i].is_pooled) {
            put_off[kept++] = put_off[i];
            continue;
        }
        bool *closing = find_again(&put_off[i]);
        if (closing != NULL) *closing = false;
    }
    put_off_used = kept;
    atomic_store(&put_off_there, put_off_used);
}

struct block *blocks_close_of_context(uint64_t generation) {
    struct block *block;
    HOLD(LOCK_MEMORY);
    forget_put_off_of(generation);
    TAILQ_FOREACH(block, &blocks, next)
    if (block->generation == generation && !block->closing) break;
    if (block != NULL) block->closing = true;
    return block;
}

/* Without host memory to note it, the memory stays allocated: its context frees it. */
void blocks_put_off(const struct allocated *closed) {
    HOLD(LOCK_MEMORY);
    if (ARRAY_MAKE_ROOM(put_off, put_off_used, 1, put_off_room)) put_off[put_off_used++] = *closed;
    atomic_store(&put_off_there, put_off_used);
}

bool blocks_take_put_off(struct allocated *closed) {
    if (atomic_load_explicit(&put_off_there, memory_order_acquire) == 0) return false;
    HOLD(LOCK_MEMORY);
    const bool any = put_off_used > 0;
    if (any) *closed = put_off[--put_off_used];
    atomic_store(&put_off_there, put_off_used);
    return any;
}

bool blocks_take_marked(size_t *before, struct allocated *closed) {
    bool found = false;
    if (atomic_load_explicit(&put_off_there, memory_order_acquire) == 0) return false;
    HOLD(LOCK_MEMORY);
    if (*before > put_off_used) *before = put_off_used;
    while (*before > 0 && !found)
        found = put_off[--*before].event != NULL;
    if (!found) return false;
    *closed = put_off[*before];
    put_off[*before] = put_off[--put_off_used];
    atomic_store(&put_off_there, put_off_used);
    return true;
}

void blocks_after_fork(void) {
    struct block *block;
    while ((block = TAILQ_FIRST(&blocks)) != NULL) {
        TAILQ_REMOVE(&blocks, block, next);
        free(block->slab);
        free(block);
    }
    LIST_INIT(&with_room);
    put_off_used = 0;
    atomic_store(&blocks_there, 0);
    atomic_store(&put_off_there, 0);
    pages_after_fork();
}
