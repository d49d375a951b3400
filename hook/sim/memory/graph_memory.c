#define _GNU_SOURCE
#include "memory/graph_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "memory/memory.h"
#include "memory/pool.h"
#include "process/process.h"

static pthread_mutex_t graph_memory_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of this */
static struct graph_memory *memories;
static struct {
    uint64_t used_bytes; /* of launches that have not freed it */
    uint64_t used_high_bytes;
    uint64_t reserved_bytes; /* charged to the device */
    uint64_t reserved_high_bytes;
    uint64_t spare_bytes;   /* charged, of graphs that are gone */
} figures[SIM_DEVICES_MAX]; /* by ordinal */

static uint64_t granules(uint64_t bytes) {
    return (bytes + MEMORY_GRANULE_BYTES - 1) & ~(MEMORY_GRANULE_BYTES - 1);
}

struct graph_memory *graph_memory_new(struct pool *pool, uint64_t bytes, CUdeviceptr *address) {
    struct graph_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) return NULL;
    memory->bytes = bytes;
    memory->ordinal = pool->ordinal;
    atomic_store(&memory->references, 1);
    if (!pool_place(pool, bytes, memory, address)) {
        free(memory);
        return NULL;
    }
    memory->address = *address;
    pthread_mutex_lock(&graph_memory_lock);
    memory->next = memories;
    memories = memory;
    pthread_mutex_unlock(&graph_memory_lock);
    return memory;
}

void graph_memory_hold(struct graph_memory *memory) {
    atomic_fetch_add(&memory->references, 1);
}

void graph_memory_drop(struct graph_memory *memory) {
    if (atomic_fetch_sub(&memory->references, 1) != 1) return;
    pthread_mutex_lock(&graph_memory_lock);
    struct graph_memory **link = &memories;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    if (memory->backed) figures[memory->ordinal].spare_bytes += granules(memory->bytes);
    pthread_mutex_unlock(&graph_memory_lock);
    pool_displace(memory->address);
    free(memory);
}

/* Call with graph_memory_lock held. */
static bool back(struct graph_memory *memory) {
    if (memory->backed) return true;
    const uint64_t bytes = granules(memory->bytes);
    const int at = memory->ordinal;
    uint64_t spare = figures[at].spare_bytes < bytes ? figures[at].spare_bytes : bytes;
    if (!segment_charge(process_segment, process_row, process_devices[at], bytes - spare))
        return false;
    figures[at].spare_bytes -= spare;
    figures[at].reserved_bytes += bytes - spare;
    if (figures[at].reserved_bytes > figures[at].reserved_high_bytes)
        figures[at].reserved_high_bytes = figures[at].reserved_bytes;
    memory->backed = true;
    return true;
}

CUresult graph_memory_launch(struct graph_memory *memory, bool freed) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_lock);
    if (memory->outstanding) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!back(memory)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        memory->launches++;
        memory->outstanding = !freed;
    }
    pthread_mutex_unlock(&graph_memory_lock);
    return result;
}

void graph_memory_launch_over(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    memory->launches--;
    pthread_mutex_unlock(&graph_memory_lock);
}

bool graph_memory_claim_free(struct graph_memory *memory) {
    pthread_mutex_lock(&graph_memory_lock);
    bool outstanding = memory->outstanding;
    memory->outstanding = false;
    pthread_mutex_unlock(&graph_memory_lock);
    return outstanding;
}

/* What is live keeps its memory, also when its graph is gone. */
void graph_memory_begin(struct graph_memory *memory) {
    if (atomic_exchange(&memory->live, true)) return;
    graph_memory_hold(memory);
    const int at = memory->ordinal;
    pthread_mutex_lock(&graph_memory_lock);
    figures[at].used_bytes += memory->bytes;
    if (figures[at].used_bytes > figures[at].used_high_bytes)
        figures[at].used_high_bytes = figures[at].used_bytes;
    pthread_mutex_unlock(&graph_memory_lock);
}

void graph_memory_end(struct graph_memory *memory) {
    if (!atomic_exchange(&memory->live, false)) return;
    pthread_mutex_lock(&graph_memory_lock);
    figures[memory->ordinal].used_bytes -= memory->bytes;
    pthread_mutex_unlock(&graph_memory_lock);
    graph_memory_drop(memory);
}

void graph_memory_trim(int ordinal) {
    pthread_mutex_lock(&graph_memory_lock);
    uint64_t bytes = figures[ordinal].spare_bytes;
    figures[ordinal].spare_bytes = 0;
    for (struct graph_memory *m = memories; m != NULL; m = m->next) {
        bool idle = m->launches == 0 && !m->outstanding && !atomic_load(&m->live);
        if (m->ordinal != ordinal || !m->backed || !idle) continue;
        m->backed = false;
        bytes += granules(m->bytes);
    }
    figures[ordinal].reserved_bytes -= bytes;
    segment_discharge(process_segment, process_row, process_devices[ordinal], bytes);
    pthread_mutex_unlock(&graph_memory_lock);
}

CUresult graph_memory_figure(int ordinal, CUgraphMem_attribute which, uint64_t *bytes) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_lock);
    switch (which) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
            *bytes = figures[ordinal].used_bytes;
            break;
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
            *bytes = figures[ordinal].used_high_bytes;
            break;
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
            *bytes = figures[ordinal].reserved_bytes;
            break;
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
            *bytes = figures[ordinal].reserved_high_bytes;
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
    if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
        figures[ordinal].used_high_bytes = figures[ordinal].used_bytes;
    } else if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        figures[ordinal].reserved_high_bytes = figures[ordinal].reserved_bytes;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&graph_memory_lock);
    return result;
}
