/* Managed memory goes to a device, or to the host. */
#define _GNU_SOURCE
#include "transfer/prefetch.h"

#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/managed.h"
#include "process/context.h"
#include "process/process.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

CUmemLocation prefetch_location_of(CUdevice device) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    if (device == CU_DEVICE_CPU) location.type = CU_MEM_LOCATION_TYPE_HOST;
    return location;
}

CUresult prefetch_check_location(CUmemLocation *location) {
    if (location->type == CU_MEM_LOCATION_TYPE_HOST) location->id = CU_DEVICE_CPU;
    if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) location->id = 0;
    switch (location->type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return device_check(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool note_prefetch(struct managed_note *note, void *argument) {
    const CUmemLocation *location = argument;
    note->prefetched_type = (int8_t)location->type;
    note->prefetched_id = (int8_t)location->id;
    return true;
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                   unsigned int flags, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS) result = prefetch_check_location(&location);
    if (result != CUDA_SUCCESS) return result;
    if (capture_is_under_way(stream)) return capture_forbid_allocation(stream);
    if (flags != 0 || !managed_for_each(devPtr, count, note_prefetch, &location))
        return CUDA_ERROR_INVALID_VALUE;
    bool to_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct op op = {
        .kind = OP_PREFETCH,
        .prefetch = {.address = devPtr,
                     .bytes = count,
                     .device = to_device ? process_devices[location.id] : MANAGED_HOST}};
    return submit(stream, &op, NULL);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                CUstream hStream) {
    return sim_cuMemPrefetchAsync_v2(devPtr, count, prefetch_location_of(dstDevice), 0, hStream);
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
