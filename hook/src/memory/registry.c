#include "memory/registry.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/locks.h"

/* A record, in the tree by its space and key, and in the list of all. Guarded by LOCK_MEMORY. */
struct record {
    struct allocation allocation; /* first: the tree compares it */
    LIST_ENTRY(record) next;
};
static void *tree; /* of search.h */
static LIST_HEAD(, record) records = LIST_HEAD_INITIALIZER(records);
static struct registry_sums sums[REGISTRY_DEVICES_MAX];

static int compare(const void *left, const void *right) {
    const struct allocation *a = left, *b = right;
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    return a->key == b->key ? 0 : a->key < b->key ? -1 : 1;
}

/* A child has one thread, so that no lock is needed; locks.h has seen to the lock itself. */
static void forget_in_child(void) {
    tdestroy(tree, free);
    tree = NULL;
    LIST_INIT(&records);
    memset(sums, 0, sizeof sums);
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

static struct record *find(enum registry_space space, uint64_t key) {
    const struct allocation wanted = {.space = (uint8_t)space, .key = key};
    struct record **node = tfind(&wanted, &tree, compare);
    return node != NULL ? *node : NULL;
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

bool registry_add(const struct allocation *allocation) {
    return registry_keep(allocation, 0);
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
    struct record *record = find(space, key);
    const bool known = record != NULL;
    if (known) removed(record, taken);
    unlock_registry();
    return known;
}

const struct allocation *registry_look_locked(enum registry_space space, uint64_t key) {
    const struct record *record = find(space, key);
    return record != NULL ? &record->allocation : NULL;
}

bool registry_find(enum registry_space space, uint64_t key, struct allocation *found) {
    lock_registry();
    const struct allocation *known = registry_look_locked(space, key);
    if (known != NULL) *found = *known;
    unlock_registry();
    return known != NULL;
}

bool registry_retain(uint64_t handle) {
    lock_registry();
    struct record *record = find(REGISTRY_HANDLE, handle);
    if (record != NULL) record->allocation.references++;
    unlock_registry();
    return record != NULL;
}

bool registry_release(uint64_t handle, struct allocation *copy) {
    lock_registry();
    struct record *record = find(REGISTRY_HANDLE, handle);
    const bool ends = record != NULL && --record->allocation.references == 0;
    if (ends) removed(record, copy);
    unlock_registry();
    return ends;
}

void registry_drop_context(uint64_t context) {
    struct record *record, *next;
    lock_registry();
    for (record = LIST_FIRST(&records); record != NULL; record = next) {
        next = LIST_NEXT(record, next);
        if (context != 0 && record->allocation.context == context) removed(record, NULL);
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
