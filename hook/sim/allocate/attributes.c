/* Questions about memory: how much there is, and what an address is. */
#include <string.h>

#include "allocate/mapping.h"
#include "memory/chunk.h"
#include "memory/descriptor.h"
#include "memory/memory.h"
#include "memory/pool.h"
#include "process/context.h"
#include "process/process.h"
#include "sim_api.h"

CUresult sim_cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    const struct sim_device *device = &process_segment->devices[context->device];
    descriptor_look();
    segment_lock(process_segment);
    segment_reap(process_segment); /* what the dead held counts as free */
    segment_unlock(process_segment);
    uint64_t used = atomic_load(&device->bytes_used);
    if (free_bytes != NULL)
        *free_bytes = used > device->bytes_total ? 0 : device->bytes_total - used;
    if (total != NULL) *total = device->bytes_total;
    return CUDA_SUCCESS;
}

/* Mapped memory is an address's only where the device has access. */
static bool is_out_of_reach(const struct range *range, const struct context *context) {
    return range->kind == RANGE_MAPPING && memory_access_of(range, context->device) == 0;
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct range found;
    if (!memory_find(dptr, &found) || is_out_of_reach(&found, context)) return CUDA_ERROR_NOT_FOUND;
    if (pbase != NULL) *pbase = found.start;
    if (psize != NULL) *psize = found.bytes;
    return CUDA_SUCCESS;
}

static bool on_host(const struct range *range) {
    return range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED;
}

static uint64_t allowed_handle_types(const struct range *range) {
    if (range->kind == RANGE_MAPPING) return range->chunk->properties.requestedHandleTypes;
    return range->kind == RANGE_POOLED && range->graph == NULL ? range->pool->handle_types : 0;
}

static bool is_rdma_capable(const struct range *range) {
    if (range->kind == RANGE_MAPPING)
        return range->chunk->properties.allocFlags.gpuDirectRDMACapable;
    if (range->kind == RANGE_POOLED) return range->graph == NULL && range->pool->rdma_capable;
    return range->kind == RANGE_ALLOCATION;
}

/* Mapped memory tells the addresses beside it, from one reservation. */
static CUresult answer_of_range(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                                const struct range *range) {
    uint64_t start = range->start;
    uint64_t bytes = range->bytes;
    mapping_reservation(address, &start, &bytes);
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *)data = start;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *)data = bytes;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MAPPED:
            *(unsigned *)data = 1;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

/* A pool has its memory in segments, which lie at multiples of their size. */
static bool in_segments(const struct range *range) {
    return range->kind == RANGE_POOLED;
}

static uint64_t block_id(const struct range *range, CUdeviceptr address) {
    if (range->kind == RANGE_MAPPING) return range->chunk->id;
    const uint64_t id = in_segments(range) ? pool_segment_id(range->pool, address) : 0;
    return id != 0 ? id : range->id;
}

/* Attributes of the bytes behind an address. */
static CUresult answer_of_memory(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                                 const struct range *range) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            *(unsigned long long *)data = allowed_handle_types(range);
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            *(unsigned *)data = is_rdma_capable(range);
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            *(size_t *)data = in_segments(range) ? REGION_SEGMENT_BYTES : range->bytes;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            *(CUdeviceptr *)data =
                in_segments(range) ? address & ~(REGION_SEGMENT_BYTES - 1) : range->start;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            *(unsigned long long *)data = block_id(range, address);
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static bool mark_sync_memops(struct range *range, void *argument) {
    range->sync_memops = *(const bool *)argument;
    return true;
}

/* Who registers memory for other devices asks for them: from then on copies of it wait. */
static CUresult answer_tokens(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS *tokens, CUdeviceptr address,
                              const struct range *range) {
    if (on_host(range) || range->kind == RANGE_MANAGED) return CUDA_ERROR_NOT_SUPPORTED;
    bool wanted = true;
    memory_for_each(address, 1, mark_sync_memops, &wanted);
    tokens->p2pToken = range->id;
    tokens->vaSpaceToken = process_pid;
    return CUDA_SUCCESS;
}

/* Answers one attribute of a known address. */
static CUresult answer(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                       const struct context *context, const struct range *range) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            *(CUcontext *)data = (CUcontext)range->context;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(CUmemorytype *)data = on_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            if (is_out_of_reach(range, context)) return CUDA_ERROR_INVALID_VALUE;
            *(CUdeviceptr *)data = address;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (!on_host(range) && range->kind != RANGE_MANAGED) return CUDA_ERROR_INVALID_VALUE;
            *(void **)data = (void *)(uintptr_t)address;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
            return answer_tokens(data, address, range);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            *(unsigned *)data = range->sync_memops;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            *(unsigned *)data = range->kind == RANGE_ALLOCATION;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            *(unsigned long long *)data = range->id;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            *(unsigned *)data = range->kind == RANGE_MANAGED;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data = range->ordinal;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return answer_of_range(data, attribute, address, range);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            *(unsigned *)data = memory_access_of(range, context->device);
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            *(CUmemoryPool *)data = range->graph == NULL ? (CUmemoryPool)range->pool : NULL;
            return CUDA_SUCCESS;
        default:
            return answer_of_memory(data, attribute, address, range);
    }
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct range found;
    if (data == NULL || ptr == 0) return CUDA_ERROR_INVALID_VALUE;
    if (!memory_find(ptr, &found)) return CUDA_ERROR_INVALID_VALUE;
    return answer(data, attribute, ptr, context, &found);
}

static size_t answer_bytes(CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            return 4;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
            return 16;
        default:
            return 8;
    }
}

/* Several at once: an unknown address is no error, its answers are zero. */
CUresult sim_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                    void **data, CUdeviceptr ptr) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (attributes == NULL || data == NULL || numAttributes == 0) return CUDA_ERROR_INVALID_VALUE;
    struct range found;
    bool known = memory_find(ptr, &found);
    for (unsigned i = 0; i < numAttributes; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numAttributes; i++) {
        if (data[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
        memset(data[i], 0, answer_bytes(attributes[i]));
        if (!known && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = CU_DEVICE_INVALID;
        if (known) answer(data[i], attributes[i], ptr, context, &found);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                   CUdeviceptr ptr) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct range found;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !memory_find(ptr, &found))
        return CUDA_ERROR_INVALID_VALUE;
    if (found.kind == RANGE_MAPPING) return CUDA_ERROR_NOT_SUPPORTED;
    bool wanted = *(const unsigned *)value != 0;
    memory_for_each(ptr, 1, mark_sync_memops, &wanted);
    return CUDA_SUCCESS;
}
