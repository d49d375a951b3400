/* Stream-ordered memory: pools keep what was freed up to a threshold, and give up the rest at the
 * next synchronisation point; here that is at once. An allocation is usable as soon as the call
 * returns, which is earlier than the driver promises; its end keeps the stream's order. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "capture.h"
#include "context.h"
#include "journal.h"
#include "memory.h"
#include "objects.h"
#include "process.h"
#include "sim_api.h"
#include "stream.h"

/* A free that its stream has not come to yet: until then the stream may have the memory again. */
struct freed {
    struct freed *next;
    uint64_t address;
    uint64_t bytes;
    uint64_t stream_id;
    uint64_t ticket;
};

struct pool_memory {
    _Atomic unsigned references;
    uint64_t address;
};

struct pool {
    struct object object;
    uint32_t device;
    int ordinal;
    bool is_default;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t used_bytes;
    uint64_t used_high_bytes;
    uint64_t reserved_bytes; /* charged to the device: used, and kept for later */
    uint64_t reserved_high_bytes;
    uint64_t release_threshold;
    uint64_t max_bytes;
    struct freed *freed;
    _Atomic uint64_t freed_last; /* the address to use again first */
    int reuse[3];
};

#define POOL_MEMORY_OF_GRAPH 1u

static struct object_pool pools = OBJECT_POOL(struct pool, 4096);
static struct pool *default_pools[SIM_DEVICES_MAX]; /* by ordinal; guarded by defaults_lock */
static struct pool *current_pools[SIM_DEVICES_MAX];
static pthread_mutex_t defaults_lock = PTHREAD_MUTEX_INITIALIZER;
/* Held while a free takes effect; taken before all other locks. Who allocates waits for that, so
 * that memory which a stream has freed is used again however far the stream is. */
static pthread_mutex_t releases_lock = PTHREAD_MUTEX_INITIALIZER;

static struct pool *pool_open(int ordinal, bool is_default) {
    struct pool *pool = object_take(&pools);
    if (pool == NULL) return NULL;
    pool->ordinal = ordinal;
    pool->device = process_devices[ordinal];
    pool->is_default = is_default;
    pthread_mutex_init(&pool->lock, NULL);
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    return pool;
}

static struct pool *default_pool(int ordinal) {
    pthread_mutex_lock(&defaults_lock);
    if (default_pools[ordinal] == NULL) default_pools[ordinal] = pool_open(ordinal, true);
    if (current_pools[ordinal] == NULL) current_pools[ordinal] = default_pools[ordinal];
    struct pool *pool = default_pools[ordinal];
    pthread_mutex_unlock(&defaults_lock);
    return pool;
}

static struct pool *current_pool(int ordinal) {
    default_pool(ordinal);
    pthread_mutex_lock(&defaults_lock);
    struct pool *pool = current_pools[ordinal];
    pthread_mutex_unlock(&defaults_lock);
    return pool;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + 511) & ~511ull;
}

static uint64_t granules(uint64_t bytes) {
    return (bytes + MEMORY_GRANULE_BYTES - 1) & ~(MEMORY_GRANULE_BYTES - 1);
}

/* Gives up what is reserved beyond `keep_bytes` and not used. Call with the pool's lock held. */
static void trim(struct pool *pool, uint64_t keep_bytes) {
    if (pool->reserved_bytes <= keep_bytes) return;
    uint64_t floor = granules(pool->used_bytes > keep_bytes ? pool->used_bytes : keep_bytes);
    if (pool->reserved_bytes <= floor) return;
    segment_discharge(process_segment, process_row, pool->device, pool->reserved_bytes - floor);
    pool->reserved_bytes = floor;
}

static bool pool_take(struct pool *pool, uint64_t bytes) {
    bool fits = true;
    pthread_mutex_lock(&pool->lock);
    uint64_t needed = granules(pool->used_bytes + bytes);
    if (pool->max_bytes != 0 && needed > pool->max_bytes) fits = false;
    if (fits && needed > pool->reserved_bytes) {
        uint64_t more = needed - pool->reserved_bytes;
        fits = segment_charge(process_segment, process_row, pool->device, more);
        if (fits) pool->reserved_bytes = needed;
    }
    if (fits) {
        pool->used_bytes += bytes;
        if (pool->used_bytes > pool->used_high_bytes) pool->used_high_bytes = pool->used_bytes;
        if (pool->reserved_bytes > pool->reserved_high_bytes)
            pool->reserved_high_bytes = pool->reserved_bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

static void pool_give(struct pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    pool->used_bytes -= bytes;
    trim(pool, pool->release_threshold);
    pthread_mutex_unlock(&pool->lock);
}

static CUresult allocate(struct pool *pool, size_t bytes, CUdeviceptr *address, unsigned flags) {
    pthread_mutex_lock(&releases_lock);
    pthread_mutex_unlock(&releases_lock);
    if (!pool_take(pool, rounded(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = calloc(1, sizeof *range);
    unsigned char *storage = memory_storage_take(bytes);
    uint64_t start = address_take(rounded(bytes), 512, atomic_load(&pool->freed_last));
    if (range != NULL && storage != NULL && start != 0) {
        range->kind = RANGE_POOLED;
        range->start = start;
        range->bytes = bytes;
        range->storage = storage;
        range->device = pool->device;
        range->ordinal = pool->ordinal;
        range->id = memory_next_id();
        range->pool = pool;
        range->flags = flags;
        if (memory_insert(range)) {
            object_hold(pool);
            *address = start;
            memory_journal(JOURNAL_ALLOC, pool->device, bytes, "pool");
            return CUDA_SUCCESS;
        }
    }
    free(range);
    if (storage != NULL) memory_storage_give(storage, bytes);
    if (start != 0) address_give(start);
    pool_give(pool, rounded(bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void release_now(uint64_t address) {
    struct range *range = memory_remove(address, 1u << RANGE_POOLED);
    if (range == NULL) return;
    struct pool *pool = range->pool;
    pool_give(pool, rounded(range->bytes));
    atomic_store(&pool->freed_last, address);
    memory_journal(JOURNAL_FREE, range->device, range->bytes, "pool");
    memory_free_range(range);
    object_drop(&pools, pool);
}

/* Takes a free off the list: by ticket, or else the newest of this size in this stream. */
static uint64_t take_freed(struct pool *pool, uint64_t ticket, uint64_t bytes, uint64_t stream_id) {
    uint64_t address = 0;
    pthread_mutex_lock(&pool->lock);
    for (struct freed **link = &pool->freed; *link != NULL; link = &(*link)->next) {
        struct freed *freed = *link;
        bool meant = ticket != 0 ? freed->ticket == ticket
                                 : freed->bytes == bytes && freed->stream_id == stream_id;
        if (!meant) continue;
        address = freed->address;
        *link = freed->next;
        free(freed);
        break;
    }
    pthread_mutex_unlock(&pool->lock);
    return address;
}

void pool_release(uint64_t address, uint64_t ticket) {
    struct range found;
    if (!memory_find(address, &found) || found.kind != RANGE_POOLED) return;
    pthread_mutex_lock(&releases_lock);
    if (take_freed(found.pool, ticket, 0, 0) != 0) release_now(address);
    pthread_mutex_unlock(&releases_lock);
}

void pool_memory_hold(struct pool_memory *memory) {
    atomic_fetch_add(&memory->references, 1);
}

void pool_memory_drop(struct pool_memory *memory) {
    if (atomic_fetch_sub(&memory->references, 1) != 1) return;
    release_now(memory->address);
    free(memory);
}

/* The memory is there from now on, for all launches of the graph. */
static CUresult allocate_in_graph(CUdeviceptr *address, size_t bytes, struct pool *pool,
                                  struct stream *stream) {
    struct pool_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(pool, bytes, address, POOL_MEMORY_OF_GRAPH);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    memory->address = *address;
    atomic_store(&memory->references, 1);
    struct op op = {.kind = OP_GRAPH_ALLOC, .memory = memory};
    result = stream_submit(stream, &op, NULL);
    pool_memory_drop(memory); /* the node, if there is one, has its own reference */
    return result;
}

static CUresult allocate_in_stream(CUdeviceptr *address, size_t bytes, struct pool *pool,
                                   struct stream *stream) {
    if (address == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (pool == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *address = 0;
    if (bytes == 0) return CUDA_SUCCESS;
    if (capture_is_under_way(stream)) return allocate_in_graph(address, bytes, pool, stream);
    *address = take_freed(pool, 0, bytes, stream->id);
    return *address != 0 ? CUDA_SUCCESS : allocate(pool, bytes, address, 0);
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    return allocate_in_stream(dptr, bytesize, current_pool(stream->context->ordinal), stream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                     CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    return allocate_in_stream(dptr, bytesize, object_check(&pools, pool), stream);
}

static CUresult free_in_stream(const struct range *range, struct stream *stream) {
    static _Atomic uint64_t next_ticket = 1;
    struct freed *freed = calloc(1, sizeof *freed);
    if (freed == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    struct op op = {.kind = OP_FREE,
                    .free = {.address = range->start, .ticket = atomic_fetch_add(&next_ticket, 1)}};
    *freed = (struct freed){.address = range->start,
                            .bytes = range->bytes,
                            .stream_id = stream->id,
                            .ticket = op.free.ticket};
    pthread_mutex_lock(&range->pool->lock);
    freed->next = range->pool->freed;
    range->pool->freed = freed;
    pthread_mutex_unlock(&range->pool->lock);
    CUresult result = stream_submit(stream, &op, NULL);
    if (result != CUDA_SUCCESS) take_freed(range->pool, op.free.ticket, 0, 0);
    return result;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (dptr == 0) return CUDA_ERROR_INVALID_VALUE;
    struct range found;
    if (!memory_find(dptr, &found) || found.start != dptr) return CUDA_ERROR_INVALID_VALUE;
    bool of_graph = found.kind == RANGE_POOLED && (found.flags & POOL_MEMORY_OF_GRAPH) != 0;
    if (capture_is_under_way(stream)) {
        struct op node = {.kind = OP_GRAPH_FREE};
        return of_graph ? stream_submit(stream, &node, NULL) : capture_forbid_allocation(stream);
    }
    if (found.kind == RANGE_ALLOCATION) {
        stream_wait_context(stream->context);
        return sim_cuMemFree_v2(dptr);
    }
    if (found.kind != RANGE_POOLED) return CUDA_ERROR_INVALID_VALUE;
    return free_in_stream(&found, stream);
}

CUresult sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    if (pool == NULL || poolProps == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!device_check(poolProps->location.id)) return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    struct pool *opened = pool_open(poolProps->location.id, false);
    if (opened == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    opened->max_bytes = poolProps->maxSize;
    *pool = (CUmemoryPool)opened;
    return CUDA_SUCCESS;
}

/* Allocations that are still in use keep the pool until they are freed. */
CUresult sim_cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = object_check(&pools, handle);
    if (pool == NULL || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&defaults_lock);
    if (current_pools[pool->ordinal] == pool)
        current_pools[pool->ordinal] = default_pools[pool->ordinal];
    pthread_mutex_unlock(&defaults_lock);
    pthread_mutex_lock(&pool->lock);
    pool->release_threshold = 0;
    trim(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    object_drop(&pools, pool);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
    struct pool *pool = object_check(&pools, handle);
    if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    trim(pool, minBytesToKeep);
    pthread_mutex_unlock(&pool->lock);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    if (pool_out == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *pool_out = (CUmemoryPool)default_pool(dev);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *pool = (CUmemoryPool)current_pool(dev);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
    struct pool *pool = object_check(&pools, handle);
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    if (pool == NULL || pool->ordinal != dev) return CUDA_ERROR_INVALID_VALUE;
    default_pool(dev);
    pthread_mutex_lock(&defaults_lock);
    current_pools[dev] = pool;
    pthread_mutex_unlock(&defaults_lock);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(struct pool *pool, CUmemPool_attribute attr, void *value) {
    switch (attr) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            *(int *)value = pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            *(cuuint64_t *)value = pool->release_threshold;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
            *(cuuint64_t *)value = pool->reserved_bytes;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            *(cuuint64_t *)value = pool->reserved_high_bytes;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            *(cuuint64_t *)value = pool->used_bytes;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            *(cuuint64_t *)value = pool->used_high_bytes;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value) {
    struct pool *pool = object_check(&pools, handle);
    if (pool == NULL || value == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    CUresult result = get_attribute(pool, attr, value);
    pthread_mutex_unlock(&pool->lock);
    return result;
}

static CUresult set_attribute(struct pool *pool, CUmemPool_attribute attr, const void *value) {
    switch (attr) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
                *(const int *)value;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            pool->release_threshold = *(const cuuint64_t *)value;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            if (*(const cuuint64_t *)value != 0) return CUDA_ERROR_INVALID_VALUE;
            if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
                pool->used_high_bytes = pool->used_bytes;
            } else {
                pool->reserved_high_bytes = pool->reserved_bytes;
            }
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value) {
    struct pool *pool = object_check(&pools, handle);
    if (pool == NULL || value == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    CUresult result = set_attribute(pool, attr, value);
    pthread_mutex_unlock(&pool->lock);
    return result;
}

/* Only the pool's own device has access; asking for that again is no error. */
CUresult sim_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct pool *pool = object_check(&pools, handle);
    if (pool == NULL || (map == NULL && count > 0)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        bool own = map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                   map[i].location.id == pool->ordinal;
        if (!own) return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                                CUmemLocation *location) {
    struct pool *pool = object_check(&pools, memPool);
    if (flags == NULL || location == NULL || pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->ordinal;
    *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
