/* cuMemCreate, cuMemMap and relatives: chunks, reserved addresses and what joins them. */
#define _GNU_SOURCE
#include "allocate/mapping.h"

#include <stdlib.h>
#include <string.h>

#include "executor/executor.h"
#include "machine/journal.h"
#include "memory/address.h"
#include "memory/chunk.h"
#include "memory/memory.h"
#include "memory/reclaim.h"
#include "process/context.h"
#include "process/objects.h"
#include "process/process.h"
#include "sim_api.h"
#include "streams/in_use.h"

struct reservation {
    uint64_t start;
    uint64_t bytes;
    struct reservation *next;
};

static struct reservation
    *reservations; /* guarded by reservations_lock, as is each map and unmap */
static pthread_mutex_t reservations_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_multiple(uint64_t value) {
    return value != 0 && value % MEMORY_GRANULE_BYTES == 0;
}

/* Memory of the host cannot be had here, nor shared anywhere. */
static CUresult check_host_location(const CUmemAllocationProp *prop) {
    bool shared = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    switch (prop->location.type) {
        case CU_MEM_LOCATION_TYPE_HOST:
            return shared ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What no driver has heard of is passed over. */
static CUresult check_handle_types(unsigned wanted) {
    if (wanted & (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT))
        return CUDA_ERROR_INVALID_VALUE;
    return wanted & CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult check_properties(const CUmemAllocationProp *prop) {
    static const unsigned char zeros[sizeof prop->allocFlags.reserved];
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        memcmp(prop->allocFlags.reserved, zeros, sizeof zeros) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return check_host_location(prop);
    return check_handle_types(prop->requestedHandleTypes);
}

CUresult sim_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                           CUmemAllocationGranularity_flags option) {
    bool known = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
                 option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    if (granularity == NULL || !known) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_properties(prop);
    if (result == CUDA_SUCCESS) *granularity = MEMORY_GRANULE_BYTES;
    return result;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                         const CUmemAllocationProp *prop, unsigned long long flags) {
    if (handle == NULL || flags != 0 || !is_multiple(size)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_properties(prop);
    if (result != CUDA_SUCCESS) return result;
    if (!device_check(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    uint32_t device = process_devices[prop->location.id];
    if (atomic_load(&process_segment->devices[device].lost)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!segment_charge(process_segment, process_row, device, size) &&
        !(reclaim_unused() && segment_charge(process_segment, process_row, device, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemGenericAllocationHandle made;
    struct chunk *chunk = chunk_new(&made);
    unsigned char *storage = memory_storage_take(size);
    if (chunk == NULL || storage == NULL) {
        if (chunk != NULL) chunk_give_up(chunk);
        if (storage != NULL) memory_storage_give(storage, size);
        segment_discharge(process_segment, process_row, device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->bytes = size;
    chunk->device = device;
    chunk->properties = *prop;
    chunk->properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE; /* a hint */
    chunk->storage = storage;
    *handle = made;
    memory_journal(JOURNAL_ALLOC, device, size, "chunk");
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct chunk *chunk = chunk_to_release(handle);
    if (chunk == NULL) return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_sub(&chunk->handles, 1);
    chunk_drop(chunk);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    struct range found;
    if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&reservations_lock);
    bool mapped = memory_find((uint64_t)(uintptr_t)addr, &found) && found.kind == RANGE_MAPPING;
    if (mapped) {
        object_hold(found.chunk);
        atomic_fetch_add(&found.chunk->handles, 1);
        *handle = chunk_handle(found.chunk);
    }
    pthread_mutex_unlock(&reservations_lock);
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                    CUmemGenericAllocationHandle handle) {
    struct chunk *chunk = chunk_find(handle);
    if (prop == NULL || chunk == NULL) return CUDA_ERROR_INVALID_VALUE;
    *prop = chunk->properties;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                 unsigned long long flags) {
    bool power_of_two = (alignment & (alignment - 1)) == 0;
    if (ptr == NULL || flags != 0 || !is_multiple(size) || !power_of_two ||
        addr % MEMORY_GRANULE_BYTES != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < MEMORY_GRANULE_BYTES) alignment = MEMORY_GRANULE_BYTES;
    struct reservation *reservation = calloc(1, sizeof *reservation);
    uint64_t start = reservation == NULL ? 0 : address_take(size, alignment, addr);
    if (start == 0) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation->start = start;
    reservation->bytes = size;
    pthread_mutex_lock(&reservations_lock);
    reservation->next = reservations;
    reservations = reservation;
    pthread_mutex_unlock(&reservations_lock);
    *ptr = start;
    return CUDA_SUCCESS;
}

static bool note_any(struct range *range, void *argument) {
    (void)range;
    *(bool *)argument = true;
    return false;
}

static bool anything_mapped(uint64_t start, uint64_t bytes) {
    bool any = false;
    memory_for_each(start, bytes, note_any, &any);
    return any;
}

CUresult sim_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct reservation *ended = NULL;
    pthread_mutex_lock(&reservations_lock);
    for (struct reservation **link = &reservations; *link != NULL; link = &(*link)->next) {
        if ((*link)->start != ptr) continue;
        if ((*link)->bytes == size && !anything_mapped(ptr, size)) {
            ended = *link;
            *link = ended->next;
            result = CUDA_SUCCESS;
        }
        break;
    }
    pthread_mutex_unlock(&reservations_lock);
    if (ended != NULL) address_give(ended->start);
    free(ended);
    return result;
}

/* Call with reservations_lock held. */
static const struct reservation *reservation_of(uint64_t address) {
    const struct reservation *r = reservations;
    while (r != NULL && (address < r->start || address - r->start >= r->bytes))
        r = r->next;
    return r;
}

/* By one, or by some that lie beside each other. */
static bool is_reserved(uint64_t start, uint64_t bytes) {
    const struct reservation *r = reservation_of(start);
    while (r != NULL && bytes > r->bytes - (start - r->start)) {
        bytes -= r->bytes - (start - r->start);
        start = r->start + r->bytes;
        r = reservation_of(start);
    }
    return r != NULL;
}

bool mapping_reservation(uint64_t address, uint64_t *start, uint64_t *bytes) {
    pthread_mutex_lock(&reservations_lock);
    const struct reservation *found = reservation_of(address);
    if (found != NULL) {
        *start = found->start;
        *bytes = found->bytes;
    }
    pthread_mutex_unlock(&reservations_lock);
    return found != NULL;
}

static struct range *new_mapping(uint64_t start, struct chunk *chunk) {
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL) return NULL;
    range->kind = RANGE_MAPPING;
    range->start = start;
    range->bytes = chunk->bytes;
    range->storage = chunk->storage;
    range->device = chunk->device;
    range->ordinal = chunk->properties.location.id;
    range->id = memory_next_id();
    range->chunk = chunk;
    return range;
}

/* A chunk is mapped whole, as the driver demands today. */
static CUresult map_held(CUdeviceptr ptr, size_t size, size_t offset, struct chunk *chunk) {
    if (offset != 0 || size != chunk->bytes) return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct range *range = new_mapping(ptr, chunk);
    if (range == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&reservations_lock);
    if (is_reserved(ptr, size)) {
        object_hold(chunk);
        if (memory_insert(range)) {
            result = CUDA_SUCCESS;
        } else {
            chunk_drop(chunk);
        }
    }
    pthread_mutex_unlock(&reservations_lock);
    if (result == CUDA_SUCCESS) {
        memory_journal(JOURNAL_MAP, chunk->device, size, "map");
    } else {
        free(range);
    }
    return result;
}

CUresult sim_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags) {
    bool aligned = ptr % MEMORY_GRANULE_BYTES == 0 && is_multiple(size);
    struct chunk *chunk = flags == 0 && aligned ? chunk_hold(handle) : NULL;
    if (chunk == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = map_held(ptr, size, offset, chunk);
    chunk_drop(chunk);
    return result;
}

struct coverage {
    uint64_t next; /* where the next mapping has to begin */
    uint64_t end;
    uint32_t grant_mask;  /* devices that may touch it from now on */
    uint32_t reader_mask; /* those of them that may not write */
    uint32_t deny_mask;
    bool exact;
};

static bool note_coverage(struct range *range, void *argument) {
    struct coverage *coverage = argument;
    coverage->exact = range->kind == RANGE_MAPPING && range->start >= coverage->next &&
                      range->start + range->bytes <= coverage->end;
    if (!coverage->exact || range->start > coverage->next) return false;
    coverage->next = range->start + range->bytes;
    return true;
}

/* How much of the interval whole mappings fill from its start on; 0: it cuts one, or there is none
 * at its start. Call with reservations_lock held. */
static uint64_t covered_bytes(uint64_t start, uint64_t bytes) {
    struct coverage coverage = {.next = start, .end = start + bytes, .exact = true};
    memory_for_each(start, bytes, note_coverage, &coverage);
    return coverage.exact ? coverage.next - start : 0;
}

static bool note_whole(struct range *range, void *argument) {
    struct coverage *coverage = argument;
    coverage->exact = range->kind == RANGE_MAPPING && range->start >= coverage->next &&
                      range->start + range->bytes <= coverage->end;
    return coverage->exact;
}

/* Without a lock: giving large storage back takes time. */
static void free_removed(struct range *removed) {
    while (removed != NULL) {
        struct range *range = removed;
        removed = range->next_removed;
        memory_journal(JOURNAL_UNMAP, range->device, range->bytes, "unmap");
        memory_free_range(range);
    }
}

/* Mappings go whole or not at all; that some addresses have none is no error. */
CUresult sim_cuMemUnmap(CUdeviceptr ptr, size_t size) {
    if (ptr % MEMORY_GRANULE_BYTES != 0 || !is_multiple(size)) return CUDA_ERROR_INVALID_VALUE;
    struct coverage coverage = {.next = ptr, .end = ptr + size, .exact = true};
    executor_catch_up(); /* what was queued and can run counts as running */
    pthread_mutex_lock(&reservations_lock);
    memory_for_each(ptr, size, note_whole, &coverage);
    bool covered = coverage.exact && reservation_of(ptr) != NULL;
    struct range *removed = NULL;
    for (uint64_t at = ptr; covered && at < ptr + size; at += MEMORY_GRANULE_BYTES) {
        struct range *range = memory_remove(at, 1u << RANGE_MAPPING);
        if (range == NULL) continue;
        in_use_unmap(range->device, range->start, range->bytes);
        range->next_removed = removed;
        removed = range;
    }
    pthread_mutex_unlock(&reservations_lock);
    free_removed(removed);
    return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool apply_access(struct range *range, void *argument) {
    const struct coverage *coverage = argument;
    range->access_mask = (range->access_mask | coverage->grant_mask) & ~coverage->deny_mask;
    range->reader_mask = (range->reader_mask & ~coverage->grant_mask) | coverage->reader_mask;
    return true;
}

static CUresult add_change(struct coverage *change, const CUmemAccessDesc *desc) {
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!device_check(desc->location.id)) return CUDA_ERROR_INVALID_VALUE;
    const uint32_t bit = 1u << process_devices[desc->location.id];
    switch (desc->flags) {
        case CU_MEM_ACCESS_FLAGS_PROT_NONE:
            change->deny_mask |= bit;
            return CUDA_SUCCESS;
        case CU_MEM_ACCESS_FLAGS_PROT_READ:
            change->reader_mask |= bit;
            change->grant_mask |= bit;
            return CUDA_SUCCESS;
        case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
            change->grant_mask |= bit;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Beyond a hole nothing is changed, and that is no error. */
CUresult sim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                            size_t count) {
    if (desc == NULL || count == 0 || ptr % MEMORY_GRANULE_BYTES != 0 || !is_multiple(size))
        return CUDA_ERROR_INVALID_VALUE;
    struct coverage change = {.exact = true};
    for (size_t i = 0; i < count; i++) {
        CUresult result = add_change(&change, &desc[i]);
        if (result != CUDA_SUCCESS) return result;
    }
    pthread_mutex_lock(&reservations_lock);
    const uint64_t covered = covered_bytes(ptr, size);
    if (covered > 0) memory_for_each(ptr, covered, apply_access, &change);
    pthread_mutex_unlock(&reservations_lock);
    return covered > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr ptr) {
    struct range found;
    if (flags == NULL || location == NULL) return CUDA_ERROR_INVALID_VALUE;
    const bool of_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (of_device && !device_check(location->id)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    if (!memory_find(ptr, &found)) return CUDA_ERROR_INVALID_VALUE;
    if (of_device && found.kind == RANGE_MAPPING)
        *flags = memory_access_of(&found, process_devices[location->id]);
    return CUDA_SUCCESS;
}
