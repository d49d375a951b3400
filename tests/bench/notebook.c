/* A notebook without Python: it holds device memory, and each of its cells checks a part of it,
 * writes a part anew, and computes. A cell that computes nothing checks every byte. Commands come
 * one a line; the answer is the command's name, its CUresult, and what it found out.
 *
 *   open                the device, with a context
 *   hold BLOCKS BYTES   a cell that allocates so many blocks and fills them
 *   cell NANOSECONDS    a cell that computes besides, as much as takes an H200 that long. Answers
 * when it began, when its first launch went through, when it began to compute, when all was done
 * (by CLOCK_MONOTONIC), and how many parts of its memory were wrong
 *   copies NANOSECONDS  a cell that copies 64 MiB to the device, again and again
 *   allocs NANOSECONDS  a cell that allocates 2 MiB and frees them, again and again. Both say
 * "begun" when their first launch went through, and answer with the mean and the 95th percentile of
 * how long a copy, or an allocation, took
 *
 * A part is a piece of a block that one launch checks. What it holds follows from its number and
 * from how often it was written, so that a part which is stale or in another's place is found. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "computing.h"

#define MIB ((uint64_t)1 << 20)
#define PART_BYTES (128 * MIB)
#define FILL_BYTES (2 * MIB)
#define PARTS_MAX 4096
#define STREAMS 64       /* a check occupies one multiprocessor: so many run at once */
#define PARTS_A_CELL 8u  /* a cell writes every eighth part anew, */
#define CHECKS_A_CELL 4u /* and checks every fourth: on an H200 20 GiB take 0.1 s then, not 0.4 */

static struct {
    CUdevice device;
    CUcontext context;
    CUfunction fill, checksum, spin, work;
    bool simulated; /* no launch but the built-in ones */
    CUstream streams[STREAMS];
    uint64_t *sums; /* pinned: a check needs no device memory of its own */
    CUdeviceptr sums_address, computed;
} gpu;

static struct part {
    CUdeviceptr address;
    uint64_t bytes;
    uint32_t written;
} parts[PARTS_MAX];

static uint32_t parts_used, cells;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) exit(4);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, bytes + 1);
    if (text == NULL || fread(text, 1, bytes, file) != bytes) exit(4);
    fclose(file);
    return text;
}

static CUresult open_device(void) {
    CUmodule module;
    void *host = NULL;
    CUresult result = cuInit(0);
    if (!result) result = cuDeviceGet(&gpu.device, 0);
    if (!result) result = cuDevicePrimaryCtxRetain(&gpu.context, gpu.device);
    if (!result) result = cuCtxSetCurrent(gpu.context);
    char *text = read_text(BUILTINS_PTX);
    if (!result) result = cuModuleLoadData(&module, text);
    free(text);
    if (!result) result = cuModuleGetFunction(&gpu.fill, module, "fill");
    if (!result) result = cuModuleGetFunction(&gpu.checksum, module, "checksum");
    if (!result) result = cuModuleGetFunction(&gpu.spin, module, "spin");
    if (!result) result = cuModuleLoadData(&module, computing);
    if (!result) result = cuModuleGetFunction(&gpu.work, module, "work");
    for (int i = 0; i < STREAMS && !result; i++)
        result = cuStreamCreate(&gpu.streams[i], CU_STREAM_NON_BLOCKING);
    if (!result)
        result = cuMemHostAlloc(&host, PARTS_MAX * sizeof *gpu.sums, CU_MEMHOSTALLOC_DEVICEMAP);
    gpu.sums = host;
    if (!result) result = cuMemHostGetDevicePointer(&gpu.sums_address, host, 0);
    return result;
}

/* ---- what the memory holds --------------------------------------------------------------------
 */

static uint32_t value_of(uint32_t part, uint64_t piece) {
    return ((part * 4099u + parts[part].written) * 2654435761u) ^ ((uint32_t)piece * 2246822519u);
}

static CUresult fill(uint32_t number) {
    const struct part *part = &parts[number];
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; at < part->bytes && !result; at += FILL_BYTES) {
        CUdeviceptr address = part->address + at;
        uint32_t value = value_of(number, at / FILL_BYTES);
        uint64_t words = (part->bytes - at < FILL_BYTES ? part->bytes - at : FILL_BYTES) / 4;
        void *arguments[] = {&address, &value, &words};
        result = cuLaunchKernel(gpu.fill, 64, 1, 1, 256, 1, 1, 0, gpu.streams[number % STREAMS],
                                arguments, NULL);
    }
    return result;
}

/* The sum of word[i] * (2 i + 1), as the launch finds it where nothing is wrong. */
static uint64_t expected_sum(uint32_t number) {
    const uint64_t words = parts[number].bytes / 4;
    uint64_t sum = 0;
    for (uint64_t first = 0; first < words; first += FILL_BYTES / 4) {
        const uint64_t last = first + FILL_BYTES / 4 < words ? first + FILL_BYTES / 4 : words;
        sum += value_of(number, first / (FILL_BYTES / 4)) * (last * last - first * first);
    }
    return sum;
}

static CUresult check(uint32_t number) {
    CUdeviceptr sum = gpu.sums_address + number * sizeof *gpu.sums;
    uint64_t words = parts[number].bytes / 4;
    void *arguments[] = {&sum, &parts[number].address, &words};
    return cuLaunchKernel(gpu.checksum, 1, 1, 1, 1024, 1, 1, 0, gpu.streams[number % STREAMS],
                          arguments, NULL);
}

/* Every part of which `every` is one, another one in each cell. */
static CUresult check_parts(uint32_t every, uint32_t *wrong) {
    CUresult result = CUDA_SUCCESS;
    memset(gpu.sums, 0, parts_used * sizeof *gpu.sums);
    for (uint32_t i = cells % every; i < parts_used && !result; i += every)
        result = check(i);
    if (!result) result = cuCtxSynchronize();
    for (uint32_t i = cells % every; i < parts_used && !result; i += every)
        *wrong += gpu.sums[i] != expected_sum(i);
    return result;
}

static CUresult write_some(void) {
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = cells % PARTS_A_CELL; i < parts_used && !result; i += PARTS_A_CELL) {
        parts[i].written++;
        result = fill(i);
    }
    return result;
}

/* ---- cells ------------------------------------------------------------------------------------
 */

/* What the Python side of a kernel tells the hook, if there is one. */
static void tell_hook(const char *symbol) {
    void (*function)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, symbol);
    if (function != NULL) function();
}

static CUresult spin(uint64_t nanoseconds) {
    void *arguments[] = {&nanoseconds};
    return cuLaunchKernel(gpu.spin, 1, 1, 1, 1, 1, 1, 0, gpu.streams[0], arguments, NULL);
}

static CUresult compute(uint64_t nanoseconds) {
    CUresult result = CUDA_SUCCESS;
    unsigned rounds = COMPUTING_ROUNDS;
    void *arguments[] = {&gpu.computed, &rounds};
    for (uint64_t ns = 0; ns < nanoseconds && !gpu.simulated && !result; ns += COMPUTING_NS)
        result = cuLaunchKernel(gpu.work, COMPUTING_BLOCKS, 1, 1, 256, 1, 1, 0, gpu.streams[0],
                                arguments, NULL);
    if (result == CUDA_ERROR_NOT_SUPPORTED) gpu.simulated = true;
    if (gpu.simulated) result = spin(nanoseconds);
    return result ? result : cuCtxSynchronize();
}

static CUresult hold(uint64_t blocks, uint64_t bytes) {
    CUresult result = cuMemAlloc(&gpu.computed, sizeof(float));
    for (uint64_t block = 0; block < blocks && !result; block++) {
        CUdeviceptr address;
        result = cuMemAlloc(&address, bytes);
        for (uint64_t at = 0; at < bytes && !result; at += PART_BYTES) {
            if (parts_used == PARTS_MAX) return CUDA_ERROR_INVALID_VALUE;
            const uint64_t left = bytes - at;
            parts[parts_used++] = (struct part){.address = address + at,
                                                .bytes = left < PART_BYTES ? left : PART_BYTES};
        }
    }
    for (uint32_t i = 0; i < parts_used && !result; i++)
        result = fill(i);
    return result ? result : cuCtxSynchronize();
}

static CUresult cell(uint64_t nanoseconds, char *found, size_t size) {
    uint32_t wrong = 0;
    const uint64_t began_ns = now_ns();
    tell_hook("gpushare_cell_began");
    CUresult result = spin(0);
    const uint64_t through_ns = now_ns();
    if (!result) result = check_parts(nanoseconds ? CHECKS_A_CELL : 1, &wrong);
    if (!result) result = write_some();
    if (!result) result = cuCtxSynchronize();
    const uint64_t computes_ns = now_ns();
    if (!result) result = compute(nanoseconds);
    cells++;
    snprintf(found, size, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32, began_ns,
             through_ns, computes_ns, now_ns(), wrong);
    tell_hook("gpushare_cell_ended");
    return result;
}

/* ---- one call again and again ------------------------------------------------------------------
 */

#define LOOPS_MAX 200000
#define COPY_BYTES (64 * MIB)
#define ALLOC_BYTES (2 * MIB)

static uint64_t took_ns[LOOPS_MAX];

static int order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static CUresult copy_once(void) {
    static void *host;
    static CUdeviceptr target;
    CUresult result = CUDA_SUCCESS;
    if (host == NULL) result = cuMemHostAlloc(&host, COPY_BYTES, 0);
    if (!result && target == 0) result = cuMemAlloc(&target, COPY_BYTES);
    if (!result) result = cuMemcpyHtoDAsync(target, host, COPY_BYTES, gpu.streams[0]);
    return result ? result : cuStreamSynchronize(gpu.streams[0]);
}

static CUresult allocate_once(uint64_t *end_ns) {
    CUdeviceptr address;
    const CUresult result = cuMemAlloc(&address, ALLOC_BYTES);
    *end_ns = now_ns();
    return result ? result : cuMemFree(address);
}

static CUresult again_and_again(bool copies, uint64_t nanoseconds, char *found, size_t size) {
    size_t count = 0;
    uint64_t sum_ns = 0, end_ns = 0;
    tell_hook("gpushare_cell_began");
    CUresult result = spin(0);
    if (!result) result = copies ? copy_once() : allocate_once(&end_ns);
    printf("begun %d\n", (int)result);
    fflush(stdout);
    for (const uint64_t until_ns = now_ns() + nanoseconds;
         now_ns() < until_ns && count < LOOPS_MAX && !result; count++) {
        const uint64_t began_ns = now_ns();
        result = copies ? copy_once() : allocate_once(&end_ns);
        sum_ns += took_ns[count] = (copies ? now_ns() : end_ns) - began_ns;
    }
    tell_hook("gpushare_cell_ended");
    if (count == 0) return result ? result : CUDA_ERROR_INVALID_VALUE;
    qsort(took_ns, count, sizeof *took_ns, order);
    snprintf(found, size, " %" PRIu64 " %" PRIu64, sum_ns / count, took_ns[count * 95 / 100]);
    return result;
}

int main(void) {
    char line[256], command[16], found[256];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a cell may wait for a turn that nobody gives any more */
    while (fgets(line, sizeof line, stdin)) {
        uint64_t a = 0, b = 0;
        CUresult result = CUDA_ERROR_INVALID_VALUE;
        if (sscanf(line, "%15s %" SCNu64 " %" SCNu64, command, &a, &b) < 1) continue;
        found[0] = '\0';
        if (strcmp(command, "open") == 0) result = open_device();
        if (strcmp(command, "hold") == 0) {
            tell_hook("gpushare_cell_began");
            result = hold(a, b);
            tell_hook("gpushare_cell_ended");
        }
        if (strcmp(command, "cell") == 0) result = cell(a, found, sizeof found);
        if (strcmp(command, "copies") == 0 || strcmp(command, "allocs") == 0)
            result = again_and_again(command[0] == 'c', a, found, sizeof found);
        printf("%s %d%s\n", command, (int)result, found);
        fflush(stdout);
    }
    return 0;
}
