#include "swap/managed_room.h"

#include "base/driver.h"
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
    chunk->comes_by_faults =
        names_another(chunk, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) ||
        names_another(chunk, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION);
}

bool managed_room_on_host(const struct chunk *chunk) {
    const uint64_t wanted_bytes = chunk->bytes + pipeline_managed_bytes(true);
    return cgroup_look(wanted_bytes).room_bytes >= wanted_bytes;
}

bool managed_room_on_device(const struct chunk *chunk) {
    size_t free_bytes = 0, total_bytes;
    if (chunk->comes_by_faults) return true;
    const CUresult result = driver_get()->memory_get_info(&free_bytes, &total_bytes);
    return result == CUDA_SUCCESS && free_bytes >= chunk->bytes + pipeline_managed_bytes(false);
}
