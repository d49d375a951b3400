#include "allocate/physical.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static bool physical_of_handle(uint64_t handle, uint64_t *number) {
    struct allocation record;
    if (!registry_find(REGISTRY_HANDLE, handle, &record)) return false;
    *number = record.link;
    return true;
}

static void add_holder(enum registry_space space, uint64_t key, uint64_t number, uint64_t bytes) {
    const struct allocation holder = {
        .key = key,
        .link = number,
        .span_bytes = bytes,
        .references = 1,
        .device = MEMORY_NOT_ON_DEVICE,
        .space = (uint8_t)space,
        .kind = ALLOCATION_NONE,
    };
    registry_add(&holder);
}

static void drop_holder_of(uint64_t number) {
    struct allocation removed;
    if (registry_release(REGISTRY_PHYSICAL, number, &removed) == 0) memory_tell(removed.device);
}

void physical_created(const struct memory_claim *claim, uint64_t handle) {
    static _Atomic uint64_t last_number;
    if (claim->device < 0) return;
    const uint64_t number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
    memory_keep(claim, REGISTRY_PHYSICAL, ALLOCATION_PHYSICAL, number, claim->bytes);
    add_holder(REGISTRY_HANDLE, handle, number, 0);
}

void physical_retained(uint64_t handle, uint64_t address) {
    if (registry_retain(REGISTRY_HANDLE, handle, NULL) != 0) return;
    struct allocation mapping;
    if (!registry_find(REGISTRY_MAPPING, address, &mapping)) return;
    if (registry_retain(REGISTRY_PHYSICAL, mapping.link, NULL) == 0) return;
    add_holder(REGISTRY_HANDLE, handle, mapping.link, 0);
}

void physical_releasing(uint64_t handle) {
    struct allocation removed;
    if (registry_release(REGISTRY_HANDLE, handle, &removed) == 0) drop_holder_of(removed.link);
}

void physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
    uint64_t number;
    if (!physical_of_handle(handle, &number)) return;
    if (registry_retain(REGISTRY_PHYSICAL, number, NULL) == 0) return;
    add_holder(REGISTRY_MAPPING, address, number, bytes);
}

/* A range covers whole mappings only, so each begins where the one before it ends. Pieces that we
 * do not know (imported memory) hide those behind them until these are unmapped by themselves. */
void physical_unmapping(uint64_t address, uint64_t bytes) {
    const uint64_t end = address + bytes;
    while (address < end) {
        struct allocation mapping;
        if (!registry_take(REGISTRY_MAPPING, address, &mapping)) return;
        drop_holder_of(mapping.link);
        if (mapping.span_bytes == 0) return;
        address += mapping.span_bytes;
    }
}

void physical_exported(uint64_t handle) {
    uint64_t number;
    if (physical_of_handle(handle, &number)) memory_exported(REGISTRY_PHYSICAL, number);
}
