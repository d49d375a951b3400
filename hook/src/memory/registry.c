#include "memory/registry.h"

#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/hold.h"

/* A record, in the tree by its space and key, and in the list of all. Guarded by LOCK_MEMORY. */
struct record {
    struct allocation allocation; /* first: the tree compares it */
    LIST_ENTRY(record) next;
};
static void *tree; /* of search.h */
static LIST_HEAD(, record) records = LIST_HEAD_INITIALIZER(records);
static struct registry_sums sums[REGISTRY_DEVICES_MAX];
static _Atomic uint64_t bytes_allocated[REGISTRY_DEVICES_MAX]; /* what the sums say of it */

static int compare(const void *left, const void *right) {
    const struct allocation *a = left, *b = right;
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    return a->key == b->key ? 0 : a->key < b->key ? -1 : 1;
}

static struct record *find(enum registry_space space, uint64_t key) {
    const struct allocation wanted = {.space = (uint8_t)space, .key = key};
    struct record **node = tfind(&wanted, &tree, compare);
    return node != NULL ? *node : NULL;
}

static struct registry_sums *sums_of(int device) {
    return device >= 0 && device < REGISTRY_DEVICES_MAX ? &sums[device] : NULL;
}

void registry_count_locked(int device, enum registry_kind kind, uint64_t bytes,
                           uint64_t bytes_fixed, int times) {
    struct registry_sums *device_sums = sums_of(device);
    const uint64_t sign = (uint64_t)(int64_t)times;
    if (device_sums == NULL) return;
    device_sums->bytes_allocated += bytes * sign;
    atomic_store_explicit(&bytes_allocated[device], device_sums->bytes_allocated,
                          memory_order_relaxed);
    device_sums->bytes_fixed += bytes_fixed * sign;
    device_sums->bytes_of[kind] += bytes * sign;
    if (kind <= KIND_PREFETCHED) device_sums->bytes_stopped += bytes_fixed * sign;
}

static void count(const struct allocation *allocation, int times) {
    registry_count_locked(allocation->device, (enum registry_kind)allocation->kind,
                          allocation->bytes, allocation->bytes, times);
}

static void removed(struct record *record, struct allocation *copy) {
    if (copy != NULL) *copy = record->allocation;
    count(&record->allocation, -1);
    LIST_REMOVE(record, next);
    tdelete(record, &tree, compare);
    free(record);
}

bool registry_claim(int device, uint64_t bytes, uint64_t limit_bytes) {
    struct registry_sums *device_sums = sums_of(device);
    if (device_sums == NULL) return true;
    HOLD(LOCK_MEMORY);
    const uint64_t used = device_sums->bytes_allocated + device_sums->bytes_claimed;
    if (used > limit_bytes || bytes > limit_bytes - used) return false;
    device_sums->bytes_claimed += bytes;
    return true;
}

/* A forked child may be in the middle of a claim that its fresh registry knows nothing of. */
void registry_unclaim_locked(int device, uint64_t bytes) {
    struct registry_sums *device_sums = sums_of(device);
    if (device_sums == NULL) return;
    device_sums->bytes_claimed -=
        bytes < device_sums->bytes_claimed ? bytes : device_sums->bytes_claimed;
}

bool registry_add(const struct allocation *allocation) {
    return registry_keep(allocation, 0);
}

bool registry_keep(const struct allocation *allocation, uint64_t bytes_claimed) {
    HOLD(LOCK_MEMORY);
    registry_unclaim_locked(allocation->device, bytes_claimed);
    struct record *old = find((enum registry_space)allocation->space, allocation->key);
    if (old != NULL) removed(old, NULL);
    struct record *record = malloc(sizeof *record);
    if (record == NULL) return false;
    record->allocation = *allocation;
    if (tsearch(record, &tree, compare) == NULL) {
        free(record);
        return false;
    }
    LIST_INSERT_HEAD(&records, record, next);
    count(allocation, 1);
    return true;
}

bool registry_take(enum registry_space space, uint64_t key, struct allocation *taken) {
    HOLD(LOCK_MEMORY);
    struct record *record = find(space, key);
    if (record == NULL) return false;
    removed(record, taken);
    return true;
}

bool registry_find(enum registry_space space, uint64_t key, struct allocation *found) {
    HOLD(LOCK_MEMORY);
    const struct record *known = find(space, key);
    if (known != NULL) *found = known->allocation;
    return known != NULL;
}

void registry_drop_context(uint64_t context) {
    struct record *record, *next;
    HOLD(LOCK_MEMORY);
    for (record = LIST_FIRST(&records); record != NULL; record = next) {
        next = LIST_NEXT(record, next);
        if (context != 0 && record->allocation.context == context) removed(record, NULL);
    }
}

struct registry_sums registry_sums_locked(int device) {
    const struct registry_sums *device_sums = sums_of(device);
    return device_sums != NULL ? *device_sums : (struct registry_sums){0};
}

struct registry_sums registry_sums_of(int device) {
    HOLD(LOCK_MEMORY);
    return registry_sums_locked(device);
}

uint64_t registry_bytes_allocated(int device) {
    return sums_of(device) != NULL ? atomic_load(&bytes_allocated[device]) : 0;
}

void registry_after_fork(void) {
    tdestroy(tree, free);
    tree = NULL;
    LIST_INIT(&records);
    memset(sums, 0, sizeof sums);
    memset(bytes_allocated, 0, sizeof bytes_allocated);
}
