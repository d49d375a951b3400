#define _GNU_SOURCE
#include "memory/graph_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "memory/address.h"
#include "memory/graph_backing.h"
#include "memory/memory.h"
#include "memory/pool.h"
#include "process/process.h"

static pthread_mutex_t graph_memory_lock = PTHREAD_MUTEX_INITIALIZER; /* backings, too */

/* Only what fills a segment begins at one. Beyond 2^64 the rounded size is 0, which nobody gets. */
static uint64_t take_address(uint64_t bytes) {
    const uint64_t alignment = bytes < REGION_SEGMENT_BYTES ? 512 : REGION_SEGMENT_BYTES;
    return address_take((bytes + alignment - 1) & ~(alignment - 1), alignment, 0);
}

struct graph_memory *graph_memory_new(struct pool *pool, uint64_t bytes, CUdeviceptr *address) {
    struct graph_memory *memory = calloc(1, sizeof *memory);
    struct range *range = calloc(1, sizeof *range);
    uint64_t start = take_address(bytes);
    if (memory != NULL && range != NULL && start != 0) {
        atomic_store(&memory->references, 1);
        memory->pool = pool;
        memory->address = start;
        memory->bytes = bytes;
        memory->ordinal = pool->ordinal;
        range->kind = RANGE_POOLED;
        range->start = start;
        range->bytes = bytes;
        range->device = pool->device;
        range->ordinal = pool->ordinal;
        range->id = memory_next_id();
        range->pool = pool;
        range->graph = memory;
        if (memory_insert(range)) {
            object_hold(pool);
            *address = start;
            return memory;
        }
    }
    free(range);
    free(memory);
    if (start != 0) address_give(start);
    return NULL;
}

void graph_memory_hold(struct graph_memory *memory) {
    atomic_fetch_add(&memory->references, 1);
}

static bool set_storage(struct range *range, void *argument) {
    range->storage = argument;
    return false;
}

/* Its address leads nowhere. Call with graph_memory_lock held. */
static void part(struct graph_memory *memory) {
    if (memory->backing == NULL) return;
    struct graph_memory **link = &memory->backing->users;
    while (*link != memory)
        link = &(*link)->next_user;
    *link = memory->next_user;
    memory->backing = NULL;
    atomic_store(&memory->backed, false);
    memory_for_each(memory->address, 1, set_storage, NULL);
}

/* Call with graph_memory_lock held. */
static void join(struct graph_memory *memory, struct graph_backing *backing) {
    if (memory->backing == backing) return;
    part(memory);
    memory->backing = backing;
    memory->next_user = backing->users;
    backing->users = memory;
    memory_for_each(memory->address, 1, set_storage, backing->storage);
    atomic_store(&memory->backed, true);
}

void graph_memory_drop(struct graph_memory *memory) {
    if (atomic_fetch_sub(&memory->references, 1) != 1) return;
    pthread_mutex_lock(&graph_memory_lock);
    part(memory);
    pthread_mutex_unlock(&graph_memory_lock);
    struct range *range = memory_remove(memory->address, 1u << RANGE_POOLED);
    if (range != NULL) memory_free_range(range);
    address_give(memory->address);
    object_drop(&pool_pool, memory->pool);
    free(memory);
}

struct candidate {
    const struct graph_memory *memory;
    const struct graph_launch *launch;
};

/* Work that was submitted finds the memory at its address. */
static bool is_busy(const struct graph_memory *memory) {
    return memory->launches > 0 || memory->freeing;
}

/* What others do with it comes before the launch, in its stream. What outlives a launch, or may,
 * has it alone: work of others could still come when it is launched again. */
static bool fits(const struct graph_backing *backing, const void *argument) {
    const struct candidate *candidate = argument;
    const bool in_order = backing->launched.stream_id == candidate->launch->stream_id;
    if (backing->launch_id == candidate->launch->id) return false;
    for (const struct graph_memory *user = backing->users; user != NULL; user = user->next_user) {
        if (user == candidate->memory) continue;
        const bool must_be_idle = !in_order || user->outlives || candidate->memory->outlives;
        if (user->outstanding || (must_be_idle && is_busy(user))) return false;
    }
    return true;
}

/* Its own memory again, or what another graph had, or more. While an earlier launch has it at the
 * address, no other memory comes there. Call with graph_memory_lock held. */
static bool back(struct graph_memory *memory, const struct graph_launch *launch) {
    const struct candidate candidate = {memory, launch};
    struct graph_backing *backing = memory->backing;
    if (backing == NULL || (!is_busy(memory) && !fits(backing, &candidate)))
        backing = graph_backing_find(memory->ordinal, memory->bytes, fits, &candidate);
    if (backing == NULL) backing = graph_backing_open(memory->ordinal, memory->bytes);
    if (backing == NULL) return false;
    join(memory, backing);
    backing->launch_id = launch->id;
    return true;
}

/* The last launch that has it. All others come before that one. */
static struct pool_order last_of(const struct graph_backing *backing) {
    for (const struct graph_memory *user = backing->users; user != NULL; user = user->next_user)
        if (user->launches > 0) return backing->launched;
    return (struct pool_order){0};
}

CUresult graph_memory_launch(struct graph_memory *memory, const struct graph_launch *launch,
                             bool freed, struct pool_order *before) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_lock);
    memory->outlives |= !freed;
    if (memory->outstanding) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!back(memory, launch)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        *before = last_of(memory->backing);
        memory->launches++;
        memory->outstanding = !freed;
    }
    pthread_mutex_unlock(&graph_memory_lock);
    return result;
}

void graph_memory_place_launch(struct graph_memory *memory, const struct pool_order *place) {
    pthread_mutex_lock(&graph_memory_lock);
    if (memory->backing != NULL) memory->backing->launched = *place; /* else over, and trimmed */
    pthread_mutex_unlock(&graph_memory_lock);
}

void graph_memory_undo_launch(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    memory->launches--;
    memory->outstanding = false;
    pthread_mutex_unlock(&graph_memory_lock);
}

void graph_memory_launch_over(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    memory->launches--;
    pthread_mutex_unlock(&graph_memory_lock);
}

bool graph_memory_claim_free(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    bool outstanding = memory->outstanding;
    if (outstanding) {
        memory->outstanding = false;
        memory->freeing = true;
    }
    pthread_mutex_unlock(&graph_memory_lock);
    return outstanding;
}

void graph_memory_keep(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    memory->outstanding = true;
    memory->freeing = false;
    pthread_mutex_unlock(&graph_memory_lock);
}

/* What is live keeps its memory, also when its graph is gone. */
void graph_memory_begin(struct graph_memory *memory) {
    if (!atomic_exchange(&memory->live, true)) graph_memory_hold(memory);
}

void graph_memory_end(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    memory->freeing = false;
    pthread_mutex_unlock(&graph_memory_lock);
    if (atomic_exchange(&memory->live, false)) graph_memory_drop(memory);
}

/* Nobody's address leads there after that. */
static bool is_idle(struct graph_backing *backing) {
    for (const struct graph_memory *user = backing->users; user != NULL; user = user->next_user)
        if (user->launches > 0 || user->outstanding || user->freeing || atomic_load(&user->live))
            return false;
    while (backing->users != NULL)
        part(backing->users);
    return true;
}

void graph_memory_trim(int ordinal) {
    pthread_mutex_lock(&graph_memory_lock);
    graph_backing_trim(ordinal, is_idle);
    pthread_mutex_unlock(&graph_memory_lock);
}

CUresult graph_memory_figure(int ordinal, CUgraphMem_attribute which, uint64_t *bytes) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_lock);
    const struct graph_figures *figures = graph_backing_figures(ordinal);
    switch (which) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
            *bytes = figures->used_bytes;
            break;
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
            *bytes = figures->used_high_bytes;
            break;
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
            *bytes = figures->reserved_bytes;
            break;
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
            *bytes = figures->reserved_high_bytes;
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&graph_memory_lock);
    return result;
}

CUresult graph_memory_reset(int ordinal, CUgraphMem_attribute which) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_lock);
    struct graph_figures *figures = graph_backing_figures(ordinal);
    if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
        figures->used_high_bytes = figures->used_bytes;
    } else if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        figures->reserved_high_bytes = figures->reserved_bytes;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&graph_memory_lock);
    return result;
}
