/* Stream-ordered memory: cuMemAllocAsync and relatives, cuMemPool*. */
#define _GNU_SOURCE
#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/memory.h"
#include "memory/pool.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

/* The memory is there from now on, for all launches of the graph. */
static CUresult allocate_in_graph(CUdeviceptr *address, size_t bytes, struct pool *pool,
                                  struct stream *stream) {
    struct pool_memory *memory = pool_memory_new(pool, bytes, address);
    if (memory == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    struct op op = {.kind = OP_GRAPH_ALLOC, .memory = memory};
    CUresult result = submit(stream, &op, NULL);
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
    *address = pool_take_again(pool, bytes, stream->id);
    return *address != 0 ? CUDA_SUCCESS : pool_allocate(pool, bytes, address, 0);
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
    const uint64_t ticket = pool_note_free(range->pool, range->start, range->bytes, stream->id);
    if (ticket == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    struct op op = {.kind = OP_FREE, .free = {.address = range->start, .ticket = ticket}};
    CUresult result = submit(stream, &op, NULL);
    if (result != CUDA_SUCCESS) pool_forget_free(range->pool, ticket);
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
        return of_graph ? submit(stream, &node, NULL) : capture_forbid_allocation(stream);
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
    if (pool == NULL || pool->ordinal != dev) return CUDA_ERROR_INVALID_VALUE;
    pool_set_current(dev, pool);
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
    struct pool *pool = object_check(&pool_pool, handle);
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
    struct pool *pool = object_check(&pool_pool, handle);
    if (pool == NULL || value == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    CUresult result = set_attribute(pool, attr, value);
    pthread_mutex_unlock(&pool->lock);
    return result;
}

/* Only the pool's own device has access; asking for that again is no error. */
CUresult sim_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct pool *pool = object_check(&pool_pool, handle);
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
    struct pool *pool = object_check(&pool_pool, memPool);
    if (flags == NULL || location == NULL || pool == NULL) return CUDA_ERROR_INVALID_VALUE;
    bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->ordinal;
    *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
