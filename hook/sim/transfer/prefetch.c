/* Prefetches and advice: checked, and otherwise without effect, since managed memory is where both
 * sides reach it anyway. */
#define _GNU_SOURCE
#include "capture/submit.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

static CUresult check_managed(uint64_t address, uint64_t bytes) {
    struct range found;
    if (bytes == 0 || !memory_find(address, &found) || found.kind != RANGE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    bool inside = bytes <= found.bytes - (address - found.start);
    return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_location(CUmemLocation location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return device_check(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                   unsigned int flags, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS) result = check_location(location);
    if (result == CUDA_SUCCESS) result = check_managed(devPtr, count);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_PREFETCH, .prefetch_bytes = count};
    return submit(stream, &op, NULL);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                CUstream hStream) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dstDevice};
    if (dstDevice == CU_DEVICE_CPU) location.type = CU_MEM_LOCATION_TYPE_HOST;
    return sim_cuMemPrefetchAsync_v2(devPtr, count, location, 0, hStream);
}

CUresult sim_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                     CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                     size_t numPrefetchLocs, unsigned long long flags,
                                     CUstream hStream) {
    if (dptrs == NULL || sizes == NULL || prefetchLocs == NULL || prefetchLocIdxs == NULL ||
        count == 0 || numPrefetchLocs == 0 || numPrefetchLocs > count || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t location = 0;
    for (size_t i = 0; i < count; i++) {
        while (location + 1 < numPrefetchLocs && prefetchLocIdxs[location + 1] <= i)
            location++;
        CUresult result =
            sim_cuMemPrefetchAsync_v2(dptrs[i], sizes[i], prefetchLocs[location], 0, hStream);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                            CUmemLocation location) {
    struct context *context = NULL;
    (void)location;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    return check_managed(devPtr, count);
}

CUresult sim_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    return sim_cuMemAdvise_v2(devPtr, count, advice, location);
}
