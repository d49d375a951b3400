#include "memory/blocks.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/locks.h"
#include "memory/slab.h"

/* Sorted by address; guarded by LOCK_BLOCKS, as is what was put off. */
static struct block *blocks;
static size_t blocks_used, blocks_room;
static struct allocated *put_off;
static size_t put_off_used, put_off_room;

/* How much there is of either, so that who has nothing of ours takes no lock. */
static _Atomic size_t blocks_there, put_off_there;

static _Atomic uint64_t last_id;

uint64_t blocks_next_id(void) {
    return atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
}

/* ---- the tables -------------------------------------------------------------------------------
 */

/* The first block at this address or above. */
static size_t first_from(uint64_t address) {
    size_t low = 0, high = blocks_used;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (blocks[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct block *block_around(uint64_t address) {
    size_t i = first_from(address);
    if (i < blocks_used && blocks[i].address == address) return &blocks[i];
    if (i == 0) return NULL;
    struct block *before = &blocks[i - 1];
    return address - before->address < before->bytes ? before : NULL;
}

static void remove_at(size_t i) {
    free(blocks[i].slab);
    memmove(&blocks[i], &blocks[i + 1], (--blocks_used - i) * sizeof *blocks);
    atomic_store(&blocks_there, blocks_used);
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

bool blocks_add(const struct block *block, uint32_t small_bytes) {
    struct slab *slab = NULL;
    uint64_t offset;
    if (small_bytes > 0) {
        slab = calloc(1, sizeof *slab);
        if (slab == NULL) return false;
        slab_take(slab, small_bytes, block->id, &offset);
    }
    lock_take(LOCK_BLOCKS);
    const bool fits = ARRAY_MAKE_ROOM(blocks, blocks_used, 1, blocks_room);
    if (fits) {
        const size_t at = first_from(block->address);
        memmove(&blocks[at + 1], &blocks[at], (blocks_used++ - at) * sizeof *blocks);
        blocks[at] = *block;
        blocks[at].slab = slab;
        atomic_store(&blocks_there, blocks_used);
    }
    lock_release(LOCK_BLOCKS);
    if (!fits) free(slab);
    return fits;
}

bool blocks_take_small(uint64_t generation, uint32_t bytes, uint64_t *address) {
    bool taken = false;
    lock_take(LOCK_BLOCKS);
    for (size_t i = 0; i < blocks_used && !taken; i++) {
        struct block *block = &blocks[i];
        uint64_t offset;
        if (block->slab == NULL || block->generation != generation || block->closing) continue;
        taken = slab_take(block->slab, bytes, blocks_next_id(), &offset);
        if (taken) *address = block->address + offset;
    }
    lock_release(LOCK_BLOCKS);
    return taken;
}

bool blocks_find(uint64_t address, struct allocated *found) {
    if (atomic_load_explicit(&blocks_there, memory_order_acquire) == 0) return false;
    lock_take(LOCK_BLOCKS);
    const bool *closing = find_allocation(address, found);
    const bool known = closing != NULL && !*closing;
    lock_release(LOCK_BLOCKS);
    return known;
}

bool blocks_cover(uint64_t address) {
    if (atomic_load_explicit(&blocks_there, memory_order_acquire) == 0) return false;
    lock_take(LOCK_BLOCKS);
    const bool covers = block_around(address) != NULL;
    lock_release(LOCK_BLOCKS);
    return covers;
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

bool blocks_close(uint64_t address, struct allocated *closed) {
    if (atomic_load_explicit(&blocks_there, memory_order_acquire) == 0) return false;
    lock_take(LOCK_BLOCKS);
    bool *closing = find_allocation(address, closed);
    const bool closes = closing != NULL && !*closing && closed->address == address;
    if (closes) *closing = true;
    lock_release(LOCK_BLOCKS);
    return closes;
}

void blocks_reopen(const struct allocated *closed) {
    lock_take(LOCK_BLOCKS);
    bool *closing = find_again(closed);
    if (closing != NULL) *closing = false;
    lock_release(LOCK_BLOCKS);
}

static bool has_other_empty_slab(const struct block *than) {
    for (size_t i = 0; i < blocks_used; i++) {
        const struct block *other = &blocks[i];
        if (other != than && other->slab != NULL && other->generation == than->generation &&
            !other->closing && other->slab->units_used == 0)
            return true;
    }
    return false;
}

bool blocks_end(const struct allocated *closed, struct block *unused) {
    bool ends = false;
    lock_take(LOCK_BLOCKS);
    if (find_again(closed) != NULL) {
        struct block *block = block_around(closed->address);
        ends = block->slab == NULL;
        if (!ends) {
            slab_give(block->slab, closed->address - block->address);
            ends = block->slab->units_used == 0 && has_other_empty_slab(block);
        }
        block->closing = ends;
        *unused = *block;
    }
    lock_release(LOCK_BLOCKS);
    return ends;
}

void blocks_remove(const struct block *block) {
    lock_take(LOCK_BLOCKS);
    const size_t i = first_from(block->address);
    if (i < blocks_used && blocks[i].address == block->address) remove_at(i);
    lock_release(LOCK_BLOCKS);
}

static void forget_put_off_of(uint64_t generation) {
    size_t kept = 0;
    for (size_t i = 0; i < put_off_used; i++) {
        if (put_off[i].generation != generation) {
            put_off[kept++] = put_off[i];
            continue;
        }
        bool *closing = find_again(&put_off[i]);
        if (closing != NULL) *closing = false;
    }
    put_off_used = kept;
    atomic_store(&put_off_there, put_off_used);
}

bool blocks_close_of_context(uint64_t generation, struct block *closed) {
    bool found = false;
    lock_take(LOCK_BLOCKS);
    forget_put_off_of(generation);
    for (size_t i = 0; i < blocks_used && !found; i++) {
        if (blocks[i].generation != generation || blocks[i].closing) continue;
        blocks[i].closing = true;
        *closed = blocks[i];
        found = true;
    }
    lock_release(LOCK_BLOCKS);
    return found;
}

/* Without host memory to note it, the memory stays allocated: its context frees it. */
void blocks_put_off(const struct allocated *closed) {
    lock_take(LOCK_BLOCKS);
    if (ARRAY_MAKE_ROOM(put_off, put_off_used, 1, put_off_room)) put_off[put_off_used++] = *closed;
    atomic_store(&put_off_there, put_off_used);
    lock_release(LOCK_BLOCKS);
}

bool blocks_take_put_off(struct allocated *closed) {
    if (atomic_load_explicit(&put_off_there, memory_order_acquire) == 0) return false;
    lock_take(LOCK_BLOCKS);
    const bool any = put_off_used > 0;
    if (any) *closed = put_off[--put_off_used];
    atomic_store(&put_off_there, put_off_used);
    lock_release(LOCK_BLOCKS);
    return any;
}

size_t blocks_look_put_off(size_t *before, struct allocated *out, size_t max) {
    size_t looked_at = 0;
    if (atomic_load_explicit(&put_off_there, memory_order_acquire) == 0) return 0;
    lock_take(LOCK_BLOCKS);
    if (*before > put_off_used) *before = put_off_used;
    while (*before > 0 && looked_at < max)
        if (put_off[--*before].event != NULL) out[looked_at++] = put_off[*before];
    lock_release(LOCK_BLOCKS);
    return looked_at;
}

bool blocks_take_looked_at(const struct allocated *looked_at) {
    bool found = false;
    lock_take(LOCK_BLOCKS);
    for (size_t i = 0; i < put_off_used && !found; i++) {
        found = put_off[i].id == looked_at->id;
        if (found) put_off[i] = put_off[--put_off_used];
    }
    atomic_store(&put_off_there, put_off_used);
    lock_release(LOCK_BLOCKS);
    return found;
}

void blocks_after_fork(void) {
    for (size_t i = 0; i < blocks_used; i++)
        free(blocks[i].slab);
    blocks_used = 0;
    put_off_used = 0;
    atomic_store(&blocks_there, 0);
    atomic_store(&put_off_there, 0);
}
