#include "memory/device_memory.h"

#include <stdatomic.h>

#include "base/log.h"
#include "device/peers.h"
#include "memory/registry.h"

/* The driver takes no handle types for memory of this device. */
static _Atomic bool unshareable[REGISTRY_DEVICES_MAX];

static bool is_known(int device) {
    return device >= 0 && device < REGISTRY_DEVICES_MAX;
}

bool device_memory_shareable(int device) {
    return is_known(device) && driver_can_share(driver_get()) && !atomic_load(&unshareable[device]);
}

/* Not capable of RDMA: who registers memory without a word to CUDA is refused, instead of being
 * left with memory that has moved. */
static CUmemAllocationProp properties_of(int device, bool shareable) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .requestedHandleTypes =
            shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
    };
}

static bool may_mean_the_handle_type(CUresult result) {
    return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_NOT_PERMITTED;
}

CUresult device_memory_create(const struct driver *cuda, CUmemGenericAllocationHandle *handle,
                              uint64_t bytes, int device) {
    const bool shareable = device_memory_shareable(device);
    CUmemAllocationProp properties = properties_of(device, shareable);
    const CUresult result = cuda->memory_create(handle, bytes, &properties, 0);
    if (!shareable || !may_mean_the_handle_type(result)) return result;
    properties = properties_of(device, false);
    const CUresult again = cuda->memory_create(handle, bytes, &properties, 0);
    if (again == CUDA_SUCCESS) {
        atomic_store(&unshareable[device], true);
        log_debug("device %d: the driver answers %d to memory for several processes", device,
                  (int)result);
    }
    return again;
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

CUresult device_memory_put(struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    if (chunk->handle == 0) {
        CUmemGenericAllocationHandle handle;
        result = device_memory_create(cuda, &handle, chunk->bytes, chunk->device);
        if (result != CUDA_SUCCESS) return result;
        chunk->handle = handle;
        chunk->unmapped = true;
    }
    if (chunk->unmapped)
        result = cuda->memory_map(chunk->mapping->address, chunk->bytes, 0, chunk->handle, 0);
    chunk->unmapped = chunk->unmapped && result != CUDA_SUCCESS;
    return result;
}

CUresult device_memory_take_off(struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    if (chunk->handle == 0) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    if (!chunk->unmapped) result = cuda->memory_unmap(chunk->mapping->address, chunk->bytes);
    if (result != CUDA_SUCCESS) return result;
    chunk->unmapped = true;
    result = cuda->memory_release(chunk->handle);
    if (result != CUDA_SUCCESS) return result;
    chunk->unmapped = false;
    chunk->handle = 0;
    return result;
}

CUresult device_memory_give_access(uint64_t address, uint64_t bytes, int owner, int user) {
    CUmemAccessDesc accesses[1 + PEERS_MAX], peers[PEERS_MAX];
    size_t count = 1;
    accesses[0] = peers_access_of(user, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const int peer_count = peers_access(owner, peers, PEERS_MAX);
    for (int i = 0; i < peer_count; i++)
        if (peers[i].location.id != user) accesses[count++] = peers[i];
    return driver_get()->memory_set_access(address, bytes, accesses, count);
}
