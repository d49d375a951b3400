#include "swap/managed_room.h"

#include "base/driver.h"
#include "memory/device_memory.h"
#include "swap/cgroup.h"
#include "swap/copy_pipeline.h"

/* Where the parts of a chunk differ, the driver names no device. */
static bool names_another(const struct chunk *chunk, CUmem_range_attribute attribute) {
    int32_t place = CU_DEVICE_INVALID;
    const CUresult result = driver_get()->range_attribute(&place, sizeof place, attribute,
                                                          chunk->managed_at, chunk->bytes);
    return result == CUDA_SUCCESS && place != CU_DEVICE_INVALID && place != chunk->device;
}

void managed_room_note_wish(struct chunk *chunk) {
    chunk->comes_by_faults = names_another(chunk, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) ||
                             names_another(chunk, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION);
}

uint64_t managed_room_bytes(const struct chunk *chunk) {
    return chunk->has_pages ? 0 : chunk->bytes;
}

bool managed_room_on_host(const struct chunk *chunk) {
    if (chunk->has_pages) return true;
    const uint64_t wanted_bytes = chunk->bytes + pipeline_managed_bytes(true);
    return cgroup_look(wanted_bytes).room_bytes >= wanted_bytes;
}

/* What the driver keeps of memory that has left does not count as free, but an allocation gets it.
 */
static bool can_be_had(const struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    CUmemGenericAllocationHandle handle;
    if (device_memory_create(cuda, &handle, chunk) != CUDA_SUCCESS) return false;
    return cuda->memory_release(handle) == CUDA_SUCCESS;
}

bool managed_room_on_device(const struct chunk *chunk) {
    size_t free_bytes = 0, total_bytes;
    if (chunk->comes_by_faults) return true;
    const CUresult result = driver_get()->memory_get_info(&free_bytes, &total_bytes);
    if (result == CUDA_SUCCESS && free_bytes >= chunk->bytes + pipeline_managed_bytes(false))
        return true;
    return can_be_had(chunk);
}
