/* What pools, and graphs, hold of a device. */
#include "memory/graph_memory.h"
#include "memory/pool.h"
#include "process/context.h"
#include "sim_api.h"

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
                *(const int *)value != 0;
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

CUresult sim_cuDeviceGraphMemTrim(CUdevice device) {
    if (!device_check(device)) return CUDA_ERROR_INVALID_DEVICE;
    graph_memory_trim(device);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    if (!device_check(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    return graph_memory_figure(device, attr, value);
}

CUresult sim_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    if (!device_check(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || *(const cuuint64_t *)value != 0) return CUDA_ERROR_INVALID_VALUE;
    return graph_memory_reset(device, attr);
}
