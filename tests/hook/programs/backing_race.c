/* Threads allocate, ask about, fix and free memory through backing.c, on the simulated GPU, while
 * one thread parks and restores what there is, and another destroys a context full of memory again
 * and again. Prints the granules that are resident and parked in the end, then the bytes that the
 * registry has beyond one slab. */
#define __CUDA_API_VERSION_INTERNAL /* every exported name as it is */
#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocate/backing.h"
#include "base/symbols.h"
#include "fake_trace.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "memory/registry.h"
#include "surface/context_calls.h"
#include "surface/pointers.h"

#define THREADS 4
#define ROUNDS 150
#define HELD 6

static CUcontext context;
static _Atomic bool over;

/* The driver's own functions, found as the hook finds them. */
#define REAL(name) ((__typeof__(&name))symbols_real_of(SYMBOLS_CUDA, #name, true))

static void must(int result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
}

static uint64_t allocated(uint64_t bytes) {
    uint64_t address = 0;
    int result = CUDA_ERROR_UNKNOWN;
    if (!backing_allocate(&address, bytes, "cuMemAlloc_v2", &result)) result = CUDA_ERROR_UNKNOWN;
    must(result, "allocate");
    return address;
}

static void freed(uint64_t address) {
    int result = CUDA_ERROR_UNKNOWN;
    if (!backing_free(address, &result)) result = CUDA_ERROR_UNKNOWN;
    must(result, "free");
}

static void freed_later(uint64_t address) {
    int result = CUDA_ERROR_UNKNOWN;
    if (!backing_free_later(address, NULL, &result)) result = CUDA_ERROR_UNKNOWN;
    must(result, "free later");
}

static void check(uint64_t address, uint64_t bytes) {
    uint64_t base = 0;
    size_t size = 0;
    int result = CUDA_ERROR_UNKNOWN;
    pointers_range(address + bytes / 2, &base, &size, &result);
    must(result, "range");
    if (base != address || size != bytes) must(CUDA_ERROR_INVALID_VALUE, "another range");
}

static void *allocate_and_free(void *argument) {
    static const uint64_t sizes[] = {300, 70000, 1 << 20, 3 << 20, 20 << 20};
    unsigned int seed = (unsigned int)(uintptr_t)argument;
    uint64_t held[HELD] = {0};
    must(REAL(cuCtxSetCurrent)(context), "context");
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t *slot = &held[rand_r(&seed) % HELD];
        if (*slot != 0) (i % 3 == 0 ? freed_later : freed)(*slot);
        if (i % 4 == 0) backing_free_done();
        const uint64_t bytes = sizes[rand_r(&seed) % 5];
        *slot = allocated(bytes);
        check(*slot, bytes);
        if (i % 16 == 0) backing_fix(*slot);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i] != 0) freed(held[i]);
    return NULL;
}

static void *destroy_contexts(void *argument) {
    for (int i = 0; i < ROUNDS / 10; i++) {
        CUcontext own;
        must(REAL(cuCtxCreate_v2)(&own, 0, 0), "create");
        context_calls_ended(contexts_created(own, 0));
        for (int j = 0; j < 4; j++)
            allocated((uint64_t)(j + 1) << 19);
        freed_later(allocated(3 << 20));
        const struct context_end end = context_calls_leave(contexts_leave(CONTEXTS_HANDLE, own));
        must(REAL(cuCtxDestroy_v2)(own), "destroy");
        context_calls_left(&end, CUDA_SUCCESS);
    }
    return argument;
}

static void *move(void *argument) {
    must(REAL(cuCtxSetCurrent)(context), "context");
    while (!atomic_load(&over))
        if (gpushare_fake_park(0) < 0 || gpushare_fake_restore(0) < 0)
            must(CUDA_ERROR_UNKNOWN, "move");
    return argument;
}

int main(void) {
    pthread_t threads[THREADS], destroying, moving;
    must(REAL(cuInit)(0), "init");
    must(REAL(cuDevicePrimaryCtxRetain)(&context, 0), "retain");
    must(REAL(cuCtxSetCurrent)(context), "context");
    context_calls_ended(contexts_retained(context, 0));
    pthread_create(&moving, NULL, move, NULL);
    pthread_create(&destroying, NULL, destroy_contexts, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, allocate_and_free, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(destroying, NULL);
    backing_catch_up();
    atomic_store(&over, true);
    pthread_join(moving, NULL);
    const struct chunk_sums sums = chunks_sums_of(0);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sums.bytes_resident / CHUNK_GRANULE,
           sums.bytes_parked / CHUNK_GRANULE,
           (registry_sums_of(0).bytes_allocated - sums.bytes_resident) / CHUNK_GRANULE);
    return 0;
}
