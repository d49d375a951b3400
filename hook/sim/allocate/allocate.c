/* cuMemAlloc and relatives, host memory, managed memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/capture.h"
#include "machine/journal.h"
#include "memory/address.h"
#include "memory/managed.h"
#include "memory/memory.h"
#include "memory/reclaim.h"
#include "process/context.h"
#include "process/process.h"
#include "sim_api.h"
#include "streams/stream.h"

#define ADDRESS_ALIGNMENT 512u
#define PITCH_ALIGNMENT 512u

static struct range *new_range(enum range_kind kind, struct context *context, size_t bytes) {
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL) return NULL;
    range->kind = kind;
    range->bytes = bytes;
    range->id = memory_next_id();
    range->context = context;
    range->context_id = context->id;
    range->device = context->device;
    range->ordinal = context->ordinal;
    return range;
}

/* Large allocations begin at a granule, as on a device. */
static CUresult allocate(struct context *context, size_t bytes, CUdeviceptr *address) {
    uint64_t alignment =
        bytes > MEMORY_GRANULE_BYTES / 2 ? MEMORY_GRANULE_BYTES : ADDRESS_ALIGNMENT;
    if (bytes > process_segment->devices[context->device].bytes_total ||
        (!memory_charge(context->device, bytes) &&
         !(reclaim_unused() && memory_charge(context->device, bytes))))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = new_range(RANGE_ALLOCATION, context, bytes);
    unsigned char *storage = memory_storage_take(bytes);
    uint64_t start = address_take((bytes + alignment - 1) & ~(alignment - 1), alignment, 0);
    if (range != NULL && storage != NULL && start != 0) {
        range->start = start;
        range->storage = storage;
        if (memory_insert(range)) {
            *address = start;
            memory_journal(JOURNAL_ALLOC, context->device, bytes, "alloc");
            return CUDA_SUCCESS;
        }
    }
    free(range);
    if (storage != NULL) memory_storage_give(storage, bytes);
    if (start != 0) address_give(start);
    memory_discharge(context->device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (dptr == NULL || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
    result = capture_forbid_unsafe();
    return result != CUDA_SUCCESS ? result : allocate(context, bytesize, dptr);
}

CUresult sim_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                size_t Height, unsigned int ElementSizeBytes) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    bool element_is_known =
        ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    if (dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 || !element_is_known)
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = (WidthInBytes + PITCH_ALIGNMENT - 1) & ~(size_t)(PITCH_ALIGNMENT - 1);
    size_t bytes = 0;
    bool wraps = pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes);
    result = capture_forbid_unsafe();
    if (result == CUDA_SUCCESS)
        result = wraps ? CUDA_ERROR_OUT_OF_MEMORY : allocate(context, bytes, dptr);
    if (result == CUDA_SUCCESS) *pPitch = pitch;
    return result;
}

/* The driver waits for the work in flight before memory goes away. */
static CUresult free_range_at(uint64_t address, unsigned kinds) {
    struct range found;
    if (!memory_find(address, &found) || found.start != address ||
        (kinds & (1u << found.kind)) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (found.context != NULL) stream_wait_context(found.context);
    struct range *range = memory_remove(address, kinds);
    if (range == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == RANGE_ALLOCATION)
        memory_journal(JOURNAL_FREE, range->device, range->bytes, "free");
    memory_free_range(range);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemFree_v2(CUdeviceptr dptr) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (dptr == 0) return CUDA_SUCCESS;
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS) return result;
    struct range found;
    if (memory_find(dptr, &found) && found.start == dptr && found.kind == RANGE_POOLED) {
        result = sim_cuMemFreeAsync(dptr, CU_STREAM_LEGACY);
        stream_wait_context(context); /* for the work before it, and for the free itself */
        return result;
    }
    return free_range_at(dptr, 1u << RANGE_ALLOCATION | 1u << RANGE_MANAGED);
}

/* Memory that both sides reach at one address. */
static CUresult allocate_shared(enum range_kind kind, size_t bytes, unsigned flags,
                                void **address) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS) result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS) return result;
    if (address == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    struct range *range = new_range(kind, context, bytes);
    unsigned char *storage = memory_storage_take(bytes);
    if (range != NULL && storage != NULL) {
        range->start = (uint64_t)(uintptr_t)storage;
        range->storage = storage;
        range->flags = flags;
        range->sync_memops = kind == RANGE_MANAGED;
        if ((kind != RANGE_MANAGED || managed_open(range)) && memory_insert(range)) {
            *address = storage;
            return CUDA_SUCCESS;
        }
        managed_close(range);
    }
    if (storage != NULL) memory_storage_give(storage, bytes);
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if ((Flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate_shared(RANGE_HOST, bytesize, Flags, pp);
}

CUresult sim_cuMemAllocHost_v2(void **pp, size_t bytesize) {
    return allocate_shared(RANGE_HOST, bytesize, 0, pp);
}

CUresult sim_cuMemFreeHost(void *p) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (p == NULL) return CUDA_SUCCESS;
    return free_range_at((uint64_t)(uintptr_t)p, 1u << RANGE_HOST);
}

CUresult sim_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    if (dptr == NULL || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    void *address = NULL;
    CUresult result = allocate_shared(RANGE_MANAGED, bytesize, flags, &address);
    if (result == CUDA_SUCCESS) *dptr = (CUdeviceptr)(uintptr_t)address;
    return result;
}

CUresult sim_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (p == NULL || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
    struct range found;
    uint64_t start = (uint64_t)(uintptr_t)p;
    if (memory_find(start, &found)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct range *range = new_range(RANGE_REGISTERED, context, bytesize);
    if (range == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    range->start = start;
    range->storage = p;
    range->flags = Flags;
    range->read_only = (Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    if (memory_insert(range)) return CUDA_SUCCESS;
    free(range);
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult sim_cuMemHostUnregister(void *p) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    result = free_range_at((uint64_t)(uintptr_t)p, 1u << RANGE_REGISTERED);
    return result == CUDA_SUCCESS ? result : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct range found;
    if (pdptr == NULL || Flags != 0 || !memory_find((uint64_t)(uintptr_t)p, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemHostGetFlags(unsigned int *pFlags, void *p) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct range found;
    if (pFlags == NULL || !memory_find((uint64_t)(uintptr_t)p, &found) || found.kind != RANGE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *pFlags = found.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
