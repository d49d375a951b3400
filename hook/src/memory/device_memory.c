#include "memory/device_memory.h"

#include <stdatomic.h>

#include "base/log.h"
#include "device/peers.h"
#include "memory/physical.h"
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
static CUmemAllocationProp properties_of(const struct chunk *chunk, bool shareable) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = chunk->device},
        .requestedHandleTypes =
            shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .allocFlags = {.usage = chunk->usage},
    };
}

static bool may_mean_the_handle_type(CUresult result) {
    return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_NOT_PERMITTED;
}

CUresult device_memory_create(const struct driver *cuda, CUmemGenericAllocationHandle *handle,
                              const struct chunk *chunk) {
    const uint64_t bytes = (chunk->bytes + CHUNK_GRANULE - 1) / CHUNK_GRANULE * CHUNK_GRANULE;
    const bool shareable = device_memory_shareable(chunk->device);
    CUmemAllocationProp properties = properties_of(chunk, shareable);
    const CUresult result = cuda->memory_create(handle, bytes, &properties, 0);
    if (!shareable || !may_mean_the_handle_type(result)) return result;
    properties = properties_of(chunk, false);
    const CUresult again = cuda->memory_create(handle, bytes, &properties, 0);
    if (again == CUDA_SUCCESS) {
        atomic_store(&unshareable[chunk->device], true);
        log_debug("device %d: the driver answers %d to memory for several processes", chunk->device,
                  (int)result);
    }
    return again;
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

static CUresult create_for(struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    CUmemGenericAllocationHandle handle = chunk->managed_at;
    if (handle != 0) {
        chunk->handle = handle;
        return CUDA_SUCCESS;
    }
    const CUresult result =
        chunk->physical == NULL
            ? device_memory_create(cuda, &handle, chunk)
            : cuda->memory_create(&handle, chunk->bytes, &chunk->physical->properties, 0);
    if (result == CUDA_SUCCESS) chunk->handle = handle;
    return result;
}

CUresult device_memory_put(struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    CUresult result = chunk->handle == 0 ? create_for(chunk) : CUDA_SUCCESS;
    for (struct mapping *at = chunk->mappings; at != NULL && result == CUDA_SUCCESS;
         at = at->also) {
        if (at->there) continue;
        result = cuda->memory_map(at->address, at->bytes, 0, chunk->handle, 0);
        at->there = result == CUDA_SUCCESS;
    }
    return result;
}

CUresult device_memory_unmap(struct mapping *mapping) {
    if (!mapping->there) return CUDA_SUCCESS;
    const CUresult result = driver_get()->memory_unmap(mapping->address, mapping->bytes);
    mapping->there = result != CUDA_SUCCESS;
    return result;
}

CUresult device_memory_take_off(struct chunk *chunk) {
    CUresult result = CUDA_SUCCESS;
    if (chunk->handle == 0) return CUDA_SUCCESS;
    for (struct mapping *at = chunk->mappings; at != NULL && result == CUDA_SUCCESS; at = at->also)
        result = device_memory_unmap(at);
    if (result == CUDA_SUCCESS && chunk->managed_at == 0)
        result = driver_get()->memory_release(chunk->handle);
    if (result == CUDA_SUCCESS) chunk->handle = 0;
    return result;
}

bool device_memory_is_whole(const struct chunk *chunk) {
    const struct mapping *at = chunk->mappings;
    while (at != NULL && at->there)
        at = at->also;
    return chunk->handle != 0 && at == NULL;
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

CUresult device_memory_give_these(uint64_t address, uint64_t bytes,
                                  const uint8_t flags[REGISTRY_DEVICES_MAX]) {
    CUmemAccessDesc accesses[REGISTRY_DEVICES_MAX];
    size_t count = 0;
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        if (flags[device] != 0)
            accesses[count++] = peers_access_of(device, (CUmemAccess_flags)flags[device]);
    if (count == 0) return CUDA_SUCCESS;
    return driver_get()->memory_set_access(address, bytes, accesses, count);
}

static CUresult give_access_of(const struct mapping *mapping) {
    const int device = mapping->chunk->device;
    return mapping->access != NULL
               ? device_memory_give_these(mapping->address, mapping->bytes, mapping->access)
               : device_memory_give_access(mapping->address, mapping->bytes, device, device);
}

CUresult device_memory_give_accesses(const struct chunk *chunk) {
    CUresult result = CUDA_SUCCESS;
    for (const struct mapping *at = chunk->mappings; at != NULL && result == CUDA_SUCCESS;
         at = at->also)
        result = give_access_of(at);
    return result;
}

/* ---- copies -----------------------------------------------------------------------------------
 */

/* Where the chunk's own device may write. */
static const struct mapping *writable(const struct chunk *chunk) {
    const struct mapping *at = chunk->mappings;
    while (at != NULL && at->access != NULL &&
           at->access[chunk->device] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        at = at->also;
    return at;
}

uint64_t device_memory_copied_at(const struct chunk *chunk) {
    return writable(chunk)->address;
}

CUresult device_memory_open(struct chunk *chunk) {
    if (chunk->managed_at != 0 || writable(chunk) != NULL) return CUDA_SUCCESS;
    const struct driver *cuda = driver_get();
    struct mapping *own = &((struct part *)chunk)->own;
    CUdeviceptr address = own->address;
    CUresult result = CUDA_SUCCESS;
    if (address == 0) result = cuda->address_reserve(&address, chunk->bytes, CHUNK_GRANULE, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    *own = (struct mapping){
        .address = address, .bytes = chunk->bytes, .chunk = chunk, .also = chunk->mappings};
    chunk->mappings = own;
    if (chunk->handle == 0) return CUDA_SUCCESS; /* mapped when it comes */
    result = device_memory_put(chunk);
    if (result == CUDA_SUCCESS) result = give_access_of(own);
    if (result != CUDA_SUCCESS) device_memory_close(chunk);
    return result;
}

void device_memory_close(struct chunk *chunk) {
    struct mapping *own = chunk->mappings;
    if (own == NULL || own->view != NULL || own->block != NULL || own->segment != NULL) return;
    if (device_memory_unmap(own) == CUDA_SUCCESS) chunk->mappings = own->also;
}
