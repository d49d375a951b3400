/* Stream-ordered memory: cuMemAllocAsync and relatives, pools and who may touch them. */
#define _GNU_SOURCE
#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/graph_memory.h"
#include "memory/memory.h"
#include "memory/pool.h"
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

/* Memory whose free another stream has yet to come to; this stream waits for that. */
static bool take_pending(CUdeviceptr *address, size_t bytes, struct pool *pool,
                         struct stream *stream) {
    struct pool_order place;
    *address = pool_take_pending(pool, bytes, &place);
    if (*address == 0) return false;
    struct stream *other = stream_by_id(place.stream_id);
    if (other == NULL) return true; /* it is over with its last work */
    struct op op = {.kind = OP_STREAM_WAIT, .wait = {.stream = other, .sequence = place.sequence}};
    if (submit(stream, &op, NULL) != CUDA_SUCCESS) object_drop(&stream_pool, other);
    return true;
}

static CUresult allocate_in_stream(CUdeviceptr *address, size_t bytes, struct pool *pool,
                                   struct stream *stream) {
    if (address == NULL || pool == NULL || pool->imported) return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (bytes == 0) return CUDA_SUCCESS;
    if (capture_is_under_way(stream)) return allocate_in_graph(address, bytes, pool, stream);
    struct pool_order waits[STREAM_WAITS_KEPT];
    size_t count = stream_waits(stream, waits);
    *address = pool_take_again(pool, bytes, stream->id, waits, count);
    if (*address != 0) return CUDA_SUCCESS;
    CUresult result = pool_allocate(pool, bytes, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && take_pending(address, bytes, pool, stream))
        return CUDA_SUCCESS;
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
    if (pool_is_freed(range->pool, range->start)) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t ticket = pool_note_free(range->pool, range->start, range->bytes, stream->id);
    if (ticket == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    struct op op = {.kind = OP_FREE, .free = {.address = range->start, .ticket = ticket}};
    uint64_t sequence = 0;
    CUresult result = submit(stream, &op, &sequence);
    if (result != CUDA_SUCCESS) {
        pool_forget_free(range->pool, ticket);
    } else {
        pool_place_free(range->pool, ticket, sequence);
    }
    return result;
}

/* In a capture: a node, which a launch will check. Else memory that a launch has left allocated. */
static CUresult free_of_graph(struct graph_memory *memory, struct stream *stream) {
    bool captured = capture_is_under_way(stream);
    if (!captured && !graph_memory_claim_free(memory)) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_GRAPH_FREE, .memory = memory};
    if (!captured) graph_memory_hold(memory); /* a node takes a reference by itself */
    CUresult result = submit(stream, &op, NULL);
    if (result != CUDA_SUCCESS && !captured) graph_memory_drop(memory);
    return result;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (dptr == 0) return CUDA_SUCCESS;
    struct range found;
    if (!memory_find(dptr, &found) || found.start != dptr) return CUDA_ERROR_INVALID_VALUE;
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
    struct pool *opened = pool_open(poolProps->location.id, false);
    if (opened == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    opened->max_bytes = poolProps->maxSize;
    opened->handle_types = (uint32_t)poolProps->handleTypes;
    opened->rdma_capable = poolProps->gpuDirectRDMACapable != 0;
    if (opened->handle_types != 0 && !pool_share(opened)) {
        pool_close(opened);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = (CUmemoryPool)opened;
    return CUDA_SUCCESS;
}

/* Allocations that are still in use keep the pool until they are freed. */
CUresult sim_cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = object_check(&pool_pool, handle);
    if (pool == NULL || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
    pool_close(pool);
    return CUDA_SUCCESS;
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
