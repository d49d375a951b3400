#include "memory/graph_memory.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/driver.h"
#include "base/hold.h"
#include "memory/registry.h"

_Atomic bool graph_memory_is_used;

/* Guarded by LOCK_MEMORY. */
static struct executable {
    void *handle;
    uint64_t bytes;
    int device;
} *executables;
static size_t executables_used, executables_room;
static struct {
    uint64_t counted;
    uint32_t launching;
} devices[REGISTRY_DEVICES_MAX];

void graph_memory_seen(void) {
    atomic_store(&graph_memory_is_used, true);
}

/* ---- what a launch needs ----------------------------------------------------------------------
 */

static void add_node(const struct driver *cuda, CUgraphNode node, struct executable *found) {
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (cuda->graph_node_type(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return;
    if (cuda->graph_allocation(node, &params) != CUDA_SUCCESS) return;
    found->bytes += params.bytesize;
    found->device = params.poolProps.location.id;
}

/* Graphs that allocate are no parts of others (the driver refuses that). */
static struct executable look_at(const struct driver *cuda, void *graph) {
    struct executable found = {.device = -1};
    size_t count = 0;
    if (cuda->graph_nodes(graph, NULL, &count) != CUDA_SUCCESS) return found;
    CUgraphNode *nodes = calloc(count + 1, sizeof *nodes);
    if (nodes != NULL && cuda->graph_nodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(cuda, nodes[i], &found);
    free(nodes);
    return found;
}

void graph_memory_instantiated(void *executable, void *graph) {
    const struct driver *cuda = driver_get();
    if (!atomic_load(&graph_memory_is_used) || !driver_can_move(cuda)) return;
    struct executable found = look_at(cuda, graph);
    if (found.bytes == 0 || found.device < 0 || found.device >= REGISTRY_DEVICES_MAX) return;
    found.handle = executable;
    HOLD(LOCK_MEMORY);
    if (ARRAY_MAKE_ROOM(executables, executables_used, 1, executables_room))
        executables[executables_used++] = found;
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
    if (found != NULL) *found = executables[--executables_used];
}

bool graph_memory_of(void *executable, int *device, uint64_t *bytes) {
    HOLD(LOCK_MEMORY);
    const struct executable *found = find(executable);
    if (found == NULL) return false;
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
    return is_known(device) ? devices[device].counted : 0;
}

/* With LOCK_MEMORY held. Whether it is another number. */
static bool set_counted(int device, uint64_t bytes) {
    const uint64_t before = devices[device].counted;
    if (before == bytes) return false;
    registry_count_locked(device, KIND_GRAPHS, before, before, -1);
    registry_count_locked(device, KIND_GRAPHS, bytes, bytes, 1);
    devices[device].counted = bytes;
    return true;
}

void graph_memory_launching(int device, uint64_t bytes, uint64_t claimed_bytes) {
    HOLD(LOCK_MEMORY);
    devices[device].launching++;
    if (bytes > devices[device].counted) set_counted(device, bytes);
    registry_unclaim_locked(device, claimed_bytes);
}

void graph_memory_launched(int device) {
    HOLD(LOCK_MEMORY);
    devices[device].launching--;
}

/* While a launch is on its way its memory may not be there yet. */
static bool count(int device, uint64_t reserved) {
    HOLD(LOCK_MEMORY);
    if (devices[device].launching > 0 && reserved < devices[device].counted) return false;
    return set_counted(device, reserved);
}

void graph_memory_look(void (*changed)(int device)) {
    const struct driver *cuda = atomic_load(&graph_memory_is_used) ? driver_get() : NULL;
    if (!driver_can_move(cuda)) return;
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        cuuint64_t reserved = 0;
        if (cuda->graph_memory(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
            CUDA_SUCCESS)
            return; /* there are no more devices */
        if (count(device, reserved)) changed(device);
    }
}

bool graph_memory_trim(int device) {
    const struct driver *cuda = driver_get();
    const uint64_t before = graph_memory_counted(device);
    cuuint64_t reserved = 0;
    if (before == 0 || !driver_can_move(cuda) || cuda->graph_trim(device) != CUDA_SUCCESS ||
        cuda->graph_memory(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
            CUDA_SUCCESS)
        return false;
    return count(device, reserved) && reserved < before;
}

void graph_memory_after_fork(void) {
    executables_used = 0;
    for (int i = 0; i < REGISTRY_DEVICES_MAX; i++) {
        devices[i].counted = 0;
        devices[i].launching = 0;
    }
    atomic_store(&graph_memory_is_used, false);
}
