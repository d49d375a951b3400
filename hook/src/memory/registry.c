#include "memory/registry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/locks.h"

/* Open addressing with linear probing; a removed record's followers are moved up, so that there are
 * no tombstones. All of it is guarded by LOCK_REGISTRY. */
static struct slot {
    bool used;
    struct allocation allocation;
} *slots;
static size_t slot_count; /* a power of two, or 0 */
static size_t used_count;
static struct registry_sums sums[REGISTRY_DEVICES_MAX];

#define FIRST_SLOT_COUNT 256

/* A child has one thread, so that no lock is needed; locks.h has seen to the lock itself. */
static void forget_in_child(void) {
    if (slots != NULL) memset(slots, 0, slot_count * sizeof *slots);
    memset(sums, 0, sizeof sums);
    used_count = 0;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void lock_registry(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    lock_take(LOCK_REGISTRY);
}

static void unlock_registry(void) {
    lock_release(LOCK_REGISTRY);
}

static size_t home_of(uint64_t key, uint8_t space) {
    uint64_t mixed = (key ^ ((uint64_t)space << 56)) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
    return (size_t)mixed & (slot_count - 1);
}

static struct slot *find_slot(enum registry_space space, uint64_t key) {
    if (slot_count == 0) return NULL;
    for (size_t i = home_of(key, (uint8_t)space);; i = (i + 1) & (slot_count - 1)) {
        if (!slots[i].used) return NULL;
        if (slots[i].allocation.key == key && slots[i].allocation.space == space) return &slots[i];
    }
}

static void place(const struct allocation *allocation) {
    size_t i = home_of(allocation->key, allocation->space);
    while (slots[i].used)
        i = (i + 1) & (slot_count - 1);
    slots[i] = (struct slot){.used = true, .allocation = *allocation};
    used_count++;
}

static bool make_room(void) {
    if (slot_count != 0 && used_count < slot_count / 4 * 3) return true;
    const size_t old_count = slot_count;
    struct slot *old_slots = slots;
    const size_t new_count = old_count == 0 ? FIRST_SLOT_COUNT : old_count * 2;
    struct slot *new_slots = calloc(new_count, sizeof *new_slots);
    if (new_slots == NULL) return used_count + 1 < slot_count;
    slots = new_slots;
    slot_count = new_count;
    used_count = 0;
    for (size_t i = 0; i < old_count; i++)
        if (old_slots[i].used) place(&old_slots[i].allocation);
    free(old_slots);
    return true;
}

static void clear_slot(struct slot *slot) {
    size_t hole = (size_t)(slot - slots);
    for (size_t i = (hole + 1) & (slot_count - 1); slots[i].used; i = (i + 1) & (slot_count - 1)) {
        const size_t home = home_of(slots[i].allocation.key, slots[i].allocation.space);
        const size_t distance_from_home = (i - home) & (slot_count - 1);
        const size_t distance_from_hole = (i - hole) & (slot_count - 1);
        if (distance_from_home < distance_from_hole) continue;
        slots[hole] = slots[i];
        hole = i;
    }
    slots[hole].used = false;
    used_count--;
}

static struct registry_sums *sums_of(int device) {
    return device >= 0 && device < REGISTRY_DEVICES_MAX ? &sums[device] : NULL;
}

static void count(const struct allocation *allocation) {
    struct registry_sums *device_sums = sums_of(allocation->device);
    if (device_sums == NULL) return;
    device_sums->bytes_allocated += allocation->bytes;
    if (allocation->fixed) device_sums->bytes_fixed += allocation->bytes;
}

static void discount(const struct allocation *allocation) {
    struct registry_sums *device_sums = sums_of(allocation->device);
    if (device_sums == NULL) return;
    device_sums->bytes_allocated -= allocation->bytes;
    if (allocation->fixed) device_sums->bytes_fixed -= allocation->bytes;
}

static void remove_slot(struct slot *slot, struct allocation *removed) {
    if (removed != NULL) *removed = slot->allocation;
    discount(&slot->allocation);
    clear_slot(slot);
}

bool registry_claim(int device, uint64_t bytes, uint64_t limit_bytes) {
    struct registry_sums *device_sums = sums_of(device);
    if (device_sums == NULL) return true;
    lock_registry();
    const uint64_t used = device_sums->bytes_allocated + device_sums->bytes_claimed;
    const bool fits = used <= limit_bytes && bytes <= limit_bytes - used;
    if (fits) device_sums->bytes_claimed += bytes;
    unlock_registry();
    return fits;
}

/* A forked child may be in the middle of a claim that its fresh registry knows nothing of. */
static void unclaim(struct registry_sums *device_sums, uint64_t bytes) {
    device_sums->bytes_claimed -=
        bytes < device_sums->bytes_claimed ? bytes : device_sums->bytes_claimed;
}

void registry_unclaim(int device, uint64_t bytes) {
    struct registry_sums *device_sums = sums_of(device);
    if (device_sums == NULL) return;
    lock_registry();
    unclaim(device_sums, bytes);
    unlock_registry();
}

static bool add(const struct allocation *allocation) {
    struct slot *old = find_slot((enum registry_space)allocation->space, allocation->key);
    if (old != NULL) remove_slot(old, NULL);
    if (!make_room()) return false;
    place(allocation);
    count(allocation);
    return true;
}

bool registry_add(const struct allocation *allocation) {
    lock_registry();
    const bool added = add(allocation);
    unlock_registry();
    return added;
}

bool registry_keep(const struct allocation *allocation, uint64_t bytes_claimed) {
    struct registry_sums *device_sums = sums_of(allocation->device);
    lock_registry();
    const bool added = add(allocation);
    if (device_sums != NULL) unclaim(device_sums, bytes_claimed);
    unlock_registry();
    return added;
}

bool registry_take(enum registry_space space, uint64_t key, struct allocation *taken) {
    lock_registry();
    struct slot *slot = find_slot(space, key);
    if (slot != NULL) remove_slot(slot, taken);
    unlock_registry();
    return slot != NULL;
}

bool registry_find(enum registry_space space, uint64_t key, struct allocation *found) {
    lock_registry();
    const struct slot *slot = find_slot(space, key);
    if (slot != NULL) *found = slot->allocation;
    unlock_registry();
    return slot != NULL;
}

uint32_t registry_retain(enum registry_space space, uint64_t key, const struct allocation *fresh) {
    uint32_t references = 0;
    lock_registry();
    struct slot *slot = find_slot(space, key);
    if (slot != NULL)
        references = ++slot->allocation.references;
    else if (fresh != NULL && add(fresh))
        references = 1;
    unlock_registry();
    return references;
}

uint32_t registry_release(enum registry_space space, uint64_t key, struct allocation *removed) {
    uint32_t references = UINT32_MAX;
    lock_registry();
    struct slot *slot = find_slot(space, key);
    if (slot != NULL) {
        references = --slot->allocation.references;
        if (references == 0) remove_slot(slot, removed);
    }
    unlock_registry();
    return references;
}

bool registry_mark_fixed(enum registry_space space, uint64_t key, int *device) {
    lock_registry();
    struct slot *slot = find_slot(space, key);
    const bool changes = slot != NULL && !slot->allocation.fixed;
    if (changes) {
        discount(&slot->allocation);
        slot->allocation.fixed = true;
        count(&slot->allocation);
        *device = slot->allocation.device;
    }
    unlock_registry();
    return changes;
}

void registry_drop_context(uint64_t context) {
    lock_registry();
    for (size_t i = 0; i < slot_count;) {
        if (slots[i].used && context != 0 && slots[i].allocation.context == context)
            remove_slot(&slots[i], NULL); /* may have moved a follower here: look again */
        else
            i++;
    }
    unlock_registry();
}

struct registry_sums registry_sums_of(int device) {
    struct registry_sums copy = {0};
    lock_registry();
    const struct registry_sums *device_sums = sums_of(device);
    if (device_sums != NULL) copy = *device_sums;
    unlock_registry();
    return copy;
}
