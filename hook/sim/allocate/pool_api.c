/* Stream-ordered memory: cuMemAllocAsync and relatives, pools and who may touch them. */
#define _GNU_SOURCE
#include <unistd.h>

#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/graph_memory.h"
#include "memory/memory.h"
#include "memory/pooled.h"
#include "process/context.h"
#include "process/process.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

/* The address is there from now on, for all launches of the graph; the memory while they run. */
static CUresult allocate_in_graph(CUdeviceptr *address, size_t bytes, struct pool *pool,
                                  struct stream *stream) {
    struct graph_memory *memory = graph_memory_new(pool, bytes, address);
    if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    struct op op = {.kind = OP_GRAPH_ALLOC, .memory = memory};
    CUresult result = submit(stream, &op, NULL);
    graph_memory_drop(memory); /* the node, if there is one, has its own reference */
    return result;
}

/* Another stream has yet to come to the free of what this one has: it waits for that. The memory is
 * taken: a capture that has begun meanwhile changes nothing. */
static void wait_for(struct stream *stream, const struct pool_order *place) {
    struct stream *other = stream_by_id(place->stream_id);
    if (other == NULL) return; /* it is over with its last work */
    struct op op = {.kind = OP_STREAM_WAIT, .wait = {.stream = other, .sequence = place->sequence}};
    stream_queue(stream, &op);
}

static CUresult allocate_in_stream(CUdeviceptr *address, size_t bytes, struct pool *pool,
                                   struct stream *stream) {
    if (address == NULL || pool == NULL || pool->imported) return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (bytes == 0) return CUDA_SUCCESS;
    if (capture_is_under_way(stream)) return allocate_in_graph(address, bytes, pool, stream);
    CUresult result = stream->legacy ? capture_forbid_implicit(stream->context) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    struct pool_order waits[STREAM_WAITS_KEPT];
    struct pooled_taker taker = {.stream_id = stream->id, .waits = waits};
    taker.wait_count = stream_waits(stream, waits);
    result = pooled_allocate(pool, bytes, &taker, address);
    for (size_t i = 0; result == CUDA_SUCCESS && i < taker.held_count; i++)
        wait_for(stream, &taker.held_by[i]);
    return result;
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    return allocate_in_stream(dptr, bytesize, pool_current(stream->context->ordinal), stream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                     CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    return allocate_in_stream(dptr, bytesize, object_check(&pool_pool, pool), stream);
}

static CUresult free_in_stream(const struct range *range, struct stream *stream) {
    struct pool *pool = range->pool;
    const bool legacy_waits = stream->legacy || stream->blocking;
    const uint64_t ticket =
        pooled_free(pool, range->start, stream->id, legacy_waits ? stream->context->id : 0);
    if (ticket == 0) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_FREE, .free = {.pool = pool, .ticket = ticket}};
    uint64_t sequence = 0;
    object_hold(pool); /* for the work, and for what follows here */
    object_hold(pool);
    CUresult result = submit(stream, &op, &sequence);
    if (result == CUDA_SUCCESS) {
        pooled_place_free(pool, ticket, sequence);
    } else {
        pooled_keep(pool, ticket);
        object_drop(&pool_pool, pool);
    }
    object_drop(&pool_pool, pool);
    return result;
}

/* In a capture: a node, which a launch will check. Else memory that a launch has left allocated. */
static CUresult free_of_graph(struct graph_memory *memory, struct stream *stream) {
    bool captured = capture_is_under_way(stream);
    if (!captured && !graph_memory_claim_free(memory)) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_GRAPH_FREE, .memory = memory};
    if (!captured) graph_memory_hold(memory); /* a node takes a reference by itself */
    CUresult result = submit(stream, &op, NULL);
    if (result != CUDA_SUCCESS && !captured) {
        graph_memory_keep(memory);
        graph_memory_drop(memory);
    }
    return result;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (dptr == 0) return CUDA_SUCCESS;
    struct range found;
    if (!memory_find_any(dptr, &found) || found.start != dptr || found.freed)
        return CUDA_ERROR_INVALID_VALUE;
    if (found.graph != NULL) return free_of_graph(found.graph, stream);
    if (capture_is_under_way(stream)) return CUDA_ERROR_INVALID_VALUE; /* the capture goes on */
    if (found.kind == RANGE_ALLOCATION) {
        stream_wait_context(stream->context);
        return sim_cuMemFree_v2(dptr);
    }
    if (found.kind != RANGE_POOLED) return CUDA_ERROR_INVALID_VALUE;
    return free_in_stream(&found, stream);
}

/* Memory of the host cannot be had here, nor shared anywhere; nor can managed memory. */
static CUresult check_pool(const CUmemPoolProps *wanted) {
    const CUmemLocationType type = wanted->location.type;
    bool shared = wanted->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (wanted->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return shared ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    if (wanted->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_LOCATION_TYPE_HOST)
        return shared ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    if (type == CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEM_LOCATION_TYPE_DEVICE || !device_check(wanted->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return ((unsigned)wanted->handleTypes & ~known) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    if (pool == NULL || poolProps == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_pool(poolProps);
    if (result != CUDA_SUCCESS) return result;
    const bool shared = poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    const struct pool_kind kind = {.ordinal = poolProps->location.id,
                                   .fd = shared ? pool_new_file() : -1,
                                   .max_bytes = poolProps->maxSize,
                                   .handle_types = (uint32_t)poolProps->handleTypes,
                                   .rdma_capable = poolProps->gpuDirectRDMACapable != 0};
    if (shared && kind.fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    struct pool *opened = pool_open(&kind);
    if (opened != NULL) *pool = (CUmemoryPool)opened;
    if (opened == NULL && shared) close(kind.fd);
    return opened != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Allocations that are still in use keep the pool until they are freed. */
CUresult sim_cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = object_check(&pool_pool, handle);
    if (pool == NULL || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
    return pool_close(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
    struct pool *pool = object_check(&pool_pool, handle);
    if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    pool_trim(pool, minBytesToKeep);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    if (pool_out == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *pool_out = (CUmemoryPool)pool_default(dev);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    *pool = (CUmemoryPool)pool_current(dev);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
    struct pool *pool = object_check(&pool_pool, handle);
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    if (pool == NULL || pool->ordinal != dev || pool->imported) return CUDA_ERROR_INVALID_VALUE;
    pool_set_current(dev, pool);
    return CUDA_SUCCESS;
}

/* The newer calls name a place and a kind of memory. Only devices have pools here. */
static CUresult check_place(const CUmemLocation *location, CUmemAllocationType type) {
    if (location == NULL ||
        (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    switch (location->type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            if (!device_check(location->id)) return CUDA_ERROR_INVALID_DEVICE;
            return type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                    CUmemAllocationType type) {
    CUresult result = check_place(location, type);
    return result == CUDA_SUCCESS ? sim_cuDeviceGetDefaultMemPool(pool_out, location->id) : result;
}

CUresult sim_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                             CUmemAllocationType type) {
    CUresult result = check_place(location, type);
    return result == CUDA_SUCCESS ? sim_cuDeviceGetMemPool(pool, location->id) : result;
}

CUresult sim_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUresult result = check_place(location, type);
    return result == CUDA_SUCCESS ? sim_cuDeviceSetMemPool(location->id, pool) : result;
}

/* The pool's own device keeps its access. */
CUresult sim_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct pool *pool = object_check(&pool_pool, handle);
    if (pool == NULL || map == NULL) return CUDA_ERROR_INVALID_VALUE;
    uint32_t mask = atomic_load(&pool->access_mask);
    for (size_t i = 0; i < count; i++) {
        const CUmemLocation *where = &map[i].location;
        const bool none = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (where->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
        if (!device_check(where->id)) return CUDA_ERROR_INVALID_DEVICE;
        if (none && where->id == pool->ordinal) return CUDA_ERROR_INVALID_DEVICE;
        if (!none && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_NOT_SUPPORTED;
        const uint32_t bit = 1u << process_devices[where->id];
        mask = none ? mask & ~bit : mask | bit;
    }
    atomic_store(&pool->access_mask, mask);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                                CUmemLocation *location) {
    struct pool *pool = object_check(&pool_pool, memPool);
    if (flags == NULL || location == NULL || pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    const bool of_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (of_device && !device_check(location->id)) return CUDA_ERROR_INVALID_VALUE;
    bool granted =
        of_device && (atomic_load(&pool->access_mask) >> process_devices[location->id] & 1) != 0;
    *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
