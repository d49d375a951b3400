#include "memory/registry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/locks.h"

/* Open addressing with linear probing; a removed record's followers are moved up, so that there are
 * no tombstones. All of it is guarded by LOCK_MEMORY. */
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
    lock_take(LOCK_MEMORY);
}

static void unlock_registry(void) {
    lock_release(LOCK_MEMORY);
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

void registry_count_locked(int device, uint64_t bytes, uint64_t bytes_fixed, int times) {
    struct registry_sums *device_sums = sums_of(device);
    if (device_sums == NULL) return;
    device_sums->bytes_allocated += bytes * (uint64_t)(int64_t)times;
    device_sums->bytes_fixed += bytes_fixed * (uint64_t)(int64_t)times;
}

static void count(const struct allocation *allocation, int times) {
    registry_count_locked(allocation->device, allocation->bytes, allocation->bytes, times);
}

static void remove_slot(struct slot *slot, struct allocation *removed) {
    if (removed != NULL) *removed = slot->allocation;
    count(&slot->allocation, -1);
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
void registry_unclaim_locked(int device, uint64_t bytes) {
    struct registry_sums *device_sums = sums_of(device);
    if (device_sums == NULL) return;
    device_sums->bytes_claimed -=
        bytes < device_sums->bytes_claimed ? bytes : device_sums->bytes_claimed;
}

void registry_unclaim(int device, uint64_t bytes) {
    lock_registry();
    registry_unclaim_locked(device, bytes);
    unlock_registry();
}

static bool add(const struct allocation *allocation) {
    struct slot *old = find_slot((enum registry_space)allocation->space, allocation->key);
    if (old != NULL) remove_slot(old, NULL);
    if (!make_room()) return false;
    place(allocation);
    count(allocation, 1);
    return true;
}

bool registry_add(const struct allocation *allocation) {
    lock_registry();
    const bool added = add(allocation);
    unlock_registry();
    return added;
}

bool registry_keep(const struct allocation *allocation, uint64_t bytes_claimed) {
    lock_registry();
    const bool added = add(allocation);
    registry_unclaim_locked(allocation->device, bytes_claimed);
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

const struct allocation *registry_look_locked(enum registry_space space, uint64_t key) {
    const struct slot *slot = find_slot(space, key);
    return slot != NULL ? &slot->allocation : NULL;
}

bool registry_find(enum registry_space space, uint64_t key, struct allocation *found) {
    lock_registry();
    const struct allocation *record = registry_look_locked(space, key);
    if (record != NULL) *found = *record;
    unlock_registry();
    return record != NULL;
}

bool registry_retain(uint64_t handle) {
    lock_registry();
    struct slot *slot = find_slot(REGISTRY_HANDLE, handle);
    if (slot != NULL) slot->allocation.references++;
    unlock_registry();
    return slot != NULL;
}

bool registry_release(uint64_t handle, struct allocation *removed) {
    lock_registry();
    struct slot *slot = find_slot(REGISTRY_HANDLE, handle);
    const bool ends = slot != NULL && --slot->allocation.references == 0;
    if (ends) remove_slot(slot, removed);
    unlock_registry();
    return ends;
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

struct registry_sums registry_sums_locked(int device) {
    const struct registry_sums *device_sums = sums_of(device);
    return device_sums != NULL ? *device_sums : (struct registry_sums){0};
}

struct registry_sums registry_sums_of(int device) {
    lock_registry();
    const struct registry_sums copy = registry_sums_locked(device);
    unlock_registry();
    return copy;
}
