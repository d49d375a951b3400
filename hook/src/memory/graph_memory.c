#include "memory/graph_memory.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/driver.h"
#include "base/hold.h"
#include "memory/registry.h"

/* Others count so often meanwhile that theirs will do. */
#define TRIES_MAX 8

_Atomic bool graph_memory_is_used;
_Atomic uint64_t graph_memory_marks[GRAPH_MEMORY_WORDS];

/* Guarded by LOCK_MEMORY. */
static struct executable {
    void *handle;
    uint64_t bytes; /* 0: not known */
    int device;
} *executables;
static size_t executables_used, executables_room;
static uint64_t counted_on[REGISTRY_DEVICES_MAX];
static uint64_t changes; /* of those numbers */

/* With LOCK_MEMORY held. */
static void set_mark(const void *executable) {
    _Atomic uint64_t *word;
    const uint64_t mark = graph_memory_mark_of(executable, &word);
    atomic_fetch_or(word, mark);
}

static void clear_marks(void) {
    for (int i = 0; i < GRAPH_MEMORY_WORDS; i++)
        atomic_store(&graph_memory_marks[i], 0);
}

void graph_memory_seen(void) {
    atomic_store(&graph_memory_is_used, true);
}

/* ---- what a launch needs ----------------------------------------------------------------------
 */

/* Addresses of an allocation. */
struct span {
    uint64_t begin, end;
};

static int compare(const void *left, const void *right) {
    const struct span *a = left, *b = right;
    return a->begin == b->begin ? 0 : a->begin < b->begin ? -1 : 1;
}

/* Allocations that are not there at one time may have the same addresses. */
static uint64_t bytes_of_all(struct span *spans, size_t count) {
    uint64_t bytes = 0, end = 0;
    qsort(spans, count, sizeof *spans, compare);
    for (size_t i = 0; i < count; i++) {
        const uint64_t begin = spans[i].begin > end ? spans[i].begin : end;
        if (spans[i].end <= begin) continue;
        bytes += spans[i].end - begin;
        end = spans[i].end;
    }
    return bytes;
}

/* A graph within this one may allocate as well, by newer drivers: how much is not looked at. */
static bool is_allocation(const struct driver *cuda, CUgraphNode node,
                          CUDA_MEM_ALLOC_NODE_PARAMS *params, bool *has_parts) {
    CUgraphNodeType type;
    if (cuda->graph_node_type(node, &type) != CUDA_SUCCESS) return false;
    *has_parts = *has_parts || type == CU_GRAPH_NODE_TYPE_GRAPH;
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
           cuda->graph_allocation(node, params) == CUDA_SUCCESS;
}

static struct executable look_at(const struct driver *cuda, void *graph, bool *has_parts) {
    struct executable found = {.device = -1};
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    size_t count = 0, used = 0;
    if (cuda->graph_nodes(graph, NULL, &count) != CUDA_SUCCESS) return found;
    CUgraphNode *nodes = calloc(count + 1, sizeof *nodes);
    struct span *spans = calloc(count + 1, sizeof *spans);
    if (nodes == NULL || spans == NULL || cuda->graph_nodes(graph, nodes, &count) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_allocation(cuda, nodes[i], &params, has_parts)) continue;
        spans[used++] = (struct span){params.dptr, params.dptr + params.bytesize};
        found.device = params.poolProps.location.id;
    }
    if (used > 0) found.bytes = bytes_of_all(spans, used);
    free(nodes);
    free(spans);
    return found;
}

static struct executable *find(const void *handle) {
    for (size_t i = 0; i < executables_used; i++)
        if (executables[i].handle == handle) return &executables[i];
    return NULL;
}

void graph_memory_destroyed(void *executable) {
    if (!atomic_load(&graph_memory_is_used)) return;
    HOLD(LOCK_MEMORY);
    struct executable *found = find(executable);
    if (found == NULL) return;
    *found = executables[--executables_used];
    if (executables_used == 0) clear_marks();
}

void graph_memory_instantiated(void *executable, void *graph) {
    const struct driver *cuda = driver_get();
    if (!atomic_load(&graph_memory_is_used) || !driver_can_move(cuda)) return;
    graph_memory_destroyed(executable); /* without a word, and the driver gives its handle again */
    bool has_parts = false;
    struct executable found = look_at(cuda, graph, &has_parts);
    if (found.device < 0 || found.device >= REGISTRY_DEVICES_MAX) found.bytes = 0;
    if (found.bytes == 0 && !has_parts) return;
    found.handle = executable;
    HOLD(LOCK_MEMORY);
    if (!ARRAY_MAKE_ROOM(executables, executables_used, 1, executables_room)) return;
    executables[executables_used++] = found;
    set_mark(executable);
}

bool graph_memory_of(void *executable, int *device, uint64_t *bytes) {
    HOLD(LOCK_MEMORY);
    const struct executable *found = find(executable);
    if (found == NULL || found->bytes == 0) return false;
    *device = found->device;
    *bytes = found->bytes;
    return true;
}

/* ---- counting ---------------------------------------------------------------------------------
 */

static bool is_known(int device) {
    return device >= 0 && device < REGISTRY_DEVICES_MAX;
}

uint64_t graph_memory_counted(int device) {
    HOLD(LOCK_MEMORY);
    return is_known(device) ? counted_on[device] : 0;
}

static uint64_t changes_so_far(void) {
    HOLD(LOCK_MEMORY);
    return changes;
}

static bool ask(const struct driver *cuda, int device, uint64_t *reserved) {
    cuuint64_t value = 0;
    const bool answered =
        cuda->graph_memory(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value) == CUDA_SUCCESS;
    *reserved = value;
    return answered;
}

/* With LOCK_MEMORY held. Whether it is another number. */
static bool set_counted(int device, uint64_t bytes) {
    const uint64_t before = counted_on[device];
    changes++;
    if (before == bytes) return false;
    registry_count_locked(device, KIND_GRAPHS, before, before, -1);
    registry_count_locked(device, KIND_GRAPHS, bytes, bytes, 1);
    counted_on[device] = bytes;
    return true;
}

void graph_memory_expect(int device, uint64_t bytes) {
    HOLD(LOCK_MEMORY);
    set_counted(device, counted_on[device] + bytes);
    registry_unclaim_locked(device, bytes);
}

static bool count(int device, uint64_t reserved) {
    HOLD(LOCK_MEMORY);
    return set_counted(device, reserved);
}

/* An answer that comes when others have counted may be older than theirs: it is asked for again. */
static bool count_latest(const struct driver *cuda, int device, bool *is_news) {
    uint64_t reserved, seen;
    bool again = true;
    *is_news = false;
    for (int tries = 0; again && tries < TRIES_MAX; tries++) {
        seen = changes_so_far();
        if (!ask(cuda, device, &reserved)) return false;
        lock_take(LOCK_MEMORY);
        again = changes != seen;
        if (!again) *is_news = set_counted(device, reserved);
        lock_release(LOCK_MEMORY);
    }
    return true;
}

void graph_memory_look(void (*changed)(int device)) {
    const struct driver *cuda = atomic_load(&graph_memory_is_used) ? driver_get() : NULL;
    bool is_news;
    if (!driver_can_move(cuda)) return;
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        if (!count_latest(cuda, device, &is_news)) return; /* there are no more devices */
        if (is_news) changed(device);
    }
}

bool graph_memory_trim(int device) {
    const struct driver *cuda = driver_get();
    const uint64_t before = graph_memory_counted(device);
    uint64_t reserved;
    if (before == 0 || !driver_can_move(cuda) || cuda->graph_trim(device) != CUDA_SUCCESS ||
        !ask(cuda, device, &reserved))
        return false;
    return count(device, reserved) && reserved < before;
}

void graph_memory_after_fork(void) {
    executables_used = 0;
    clear_marks();
    for (int i = 0; i < REGISTRY_DEVICES_MAX; i++)
        counted_on[i] = 0;
    atomic_store(&graph_memory_is_used, false);
}
