/* cuMemGetHandleForAddressRange: descriptors by which other devices reach memory. They keep the
 * chunks that they lead to. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/chunk.h"
#include "memory/descriptor.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"

#define PAGE_BYTES 4096u

struct kept {
    size_t count;
    struct chunk *chunks[];
};

struct look {
    uint64_t next; /* what comes before it is device memory */
    uint64_t end;
    size_t count;
    struct kept *kept; /* NULL: it only counts */
};

static bool look_at(struct range *range, void *argument) {
    struct look *look = argument;
    const bool of_device = range->kind == RANGE_ALLOCATION || range->kind == RANGE_MAPPING ||
                           (range->kind == RANGE_POOLED && range->graph == NULL);
    if (range->start > look->next || range->freed || !of_device) return false;
    if (range->kind == RANGE_MAPPING) {
        if (look->kept != NULL && look->count < look->kept->count) {
            object_hold(range->chunk);
            look->kept->chunks[look->count] = range->chunk;
        }
        look->count++;
    }
    look->next = range->start + range->bytes;
    return look->next < look->end;
}

static void give_back(uint64_t argument) {
    struct kept *kept = (struct kept *)(uintptr_t)argument;
    for (size_t i = 0; i < kept->count; i++)
        if (kept->chunks[i] != NULL) chunk_drop(kept->chunks[i]);
    free(kept);
}

/* All chunks of an interval, each with a reference. */
static struct kept *keep(uint64_t address, uint64_t bytes, size_t count) {
    struct kept *kept = calloc(1, sizeof *kept + count * sizeof kept->chunks[0]);
    if (kept == NULL) return NULL;
    kept->count = count;
    struct look look = {.next = address, .end = address + bytes, .kept = kept};
    memory_for_each(address, bytes, look_at, &look);
    return kept;
}

static int describe(struct kept *kept) {
    const int own = memfd_create("gpushare-sim-dma-buf", MFD_CLOEXEC);
    const int given = own < 0 ? -1 : descriptor_of(own);
    if (given >= 0 && descriptor_when_closed(own, give_back, (uint64_t)(uintptr_t)kept))
        return given;
    if (given >= 0) close(given);
    if (own >= 0) close(own);
    give_back((uint64_t)(uintptr_t)kept);
    return -1;
}

CUresult sim_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                           CUmemRangeHandleType handleType,
                                           unsigned long long flags) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    const bool wraps = size > UINT64_MAX - dptr;
    if (handle == NULL || size == 0 || wraps || dptr % PAGE_BYTES != 0 || size % PAGE_BYTES != 0 ||
        handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct look look = {.next = dptr, .end = dptr + size};
    memory_for_each(dptr, size, look_at, &look);
    if (look.next < look.end) return CUDA_ERROR_INVALID_VALUE;
    struct kept *kept = keep(dptr, size, look.count);
    if (kept == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    const int fd = describe(kept);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)handle = fd;
    return CUDA_SUCCESS;
}
