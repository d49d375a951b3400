#include "allocate/physical.h"

#include <stdlib.h>

#include "base/hold.h"
#include "memory/chunks.h"

/* ---- holding; a handle or a mapping holds its chunk -------------------------------------------
 */

static void drop(struct chunk *chunk) {
    const int device = chunk->device;
    lock_take(LOCK_MEMORY);
    const bool ends = --chunk->holders == 0;
    if (ends) registry_count_locked(device, chunk->bytes, chunk->bytes, -1);
    lock_release(LOCK_MEMORY);
    if (!ends) return;
    free(chunk);
    memory_tell(device);
}

/* Where another thread has noted the handle meanwhile, the record holds the chunk already; without
 * host memory nothing notes it. */
static void add_handle(uint64_t handle, struct chunk *chunk) {
    const struct allocation record = {
        .key = handle,
        .chunk = chunk,
        .references = 1,
        .device = MEMORY_NOT_ON_DEVICE,
        .space = REGISTRY_HANDLE,
    };
    if (!registry_add(&record)) drop(chunk);
}

/* The chunk that is mapped there, held once more. */
static struct chunk *hold_mapped(uint64_t address) {
    HOLD(LOCK_MEMORY);
    const struct mapping *mapping = pages_find(address);
    struct chunk *chunk = mapping != NULL && mapping->block == NULL ? mapping->chunk : NULL;
    if (chunk != NULL) chunk->holders++;
    return chunk;
}

/* The one that the handle stands for, likewise. */
static struct chunk *hold_handle(uint64_t handle) {
    HOLD(LOCK_MEMORY);
    const struct allocation *record = registry_look_locked(REGISTRY_HANDLE, handle);
    struct chunk *chunk = record != NULL ? record->chunk : NULL;
    if (chunk != NULL) chunk->holders++;
    return chunk;
}

/* ---- handles ----------------------------------------------------------------------------------
 */

void physical_created(const struct memory_claim *claim, uint64_t handle) {
    struct chunk *chunk = claim->device < 0 ? NULL : calloc(1, sizeof *chunk);
    if (chunk == NULL) {
        memory_unclaim(claim);
        return;
    }
    chunk->bytes = claim->bytes;
    chunk->handle = handle;
    chunk->device = claim->device;
    chunk->holders = 1;
    chunk->fixed = true;
    lock_take(LOCK_MEMORY);
    registry_count_locked(claim->device, claim->bytes, claim->bytes, 1);
    registry_unclaim_locked(claim->device, claim->bytes);
    lock_release(LOCK_MEMORY);
    add_handle(handle, chunk);
    memory_claim_ended(claim);
}

void physical_retained(uint64_t handle, uint64_t address) {
    if (registry_retain(handle)) return;
    struct chunk *chunk = hold_mapped(address);
    if (chunk != NULL) add_handle(handle, chunk);
}

void physical_releasing(uint64_t handle) {
    struct allocation removed;
    if (registry_release(handle, &removed)) drop(removed.chunk);
}

/* ---- mappings ---------------------------------------------------------------------------------
 */

void physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
    struct chunk *chunk = hold_handle(handle);
    struct mapping *mapping = chunk == NULL ? NULL : malloc(sizeof *mapping);
    if (chunk == NULL) return;
    bool entered = false;
    if (mapping != NULL) {
        *mapping = (struct mapping){.address = address, .bytes = bytes, .chunk = chunk};
        lock_take(LOCK_MEMORY);
        entered = pages_enter(mapping);
        lock_release(LOCK_MEMORY);
    }
    if (entered) return;
    free(mapping);
    drop(chunk);
}

/* A range covers whole mappings only, so each begins where the one before it ends; one that ends
 * within a mapping is refused by the driver. Pieces that we do not know (imported memory) hide
 * those behind them until these are unmapped by themselves. */
void physical_unmapping(uint64_t address, uint64_t bytes) {
    for (uint64_t at = address; at - address < bytes;) {
        lock_take(LOCK_MEMORY);
        struct mapping *mapping = pages_find(at);
        const bool known = mapping != NULL && mapping->block == NULL && mapping->address == at &&
                           mapping->bytes <= bytes - (at - address);
        if (known) pages_leave(mapping);
        lock_release(LOCK_MEMORY);
        if (!known) return;
        at += mapping->bytes;
        drop(mapping->chunk);
        free(mapping);
    }
}
