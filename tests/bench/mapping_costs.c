/* What the driver takes for the steps by which mapped memory comes and goes, and for work beside
 * them. No hook is in this process.
 *
 * usage: mapping_costs map BLOCK BLOCKS ROUNDS   map blocks beside each other; their access is set
 *                                                by one call, then (in other rounds) by one each
 *        mapping_costs trim BYTES ROUNDS         give a pool's and the graphs' memory back
 *        mapping_costs compute SECONDS           launches of some 6.5 ms that only compute
 *        mapping_costs copy SECONDS              copies on the device and to it, 64 MiB each
 *        mapping_costs alloc SECONDS             allocations and frees of 2 MiB
 *        mapping_costs both SECONDS              copies of 1 GiB to and from the device at once
 *        mapping_costs copies 0                  copy to and from the device until input ends
 *        mapping_costs restore BLOCK BATCH       bring 8 GiB in and out again until input ends;
 * BATCH mappings get their access by one call
 *        mapping_costs churn BLOCK GBPS          make, map, unmap and free blocks at that rate,
 *        mapping_costs remap BLOCK GBPS          or map and unmap one alone, until input ends
 *
 * The first six print a line for each step: its name, and for each round or call the nanoseconds.
 * The last four print "ready" when they have begun, and bytes and nanoseconds at their end. */
#define _GNU_SOURCE
#include <cuda.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "computing.h"

#define MIB ((uint64_t)1 << 20)
#define RESTORED_BYTES (8192 * MIB)
#define COPY_BYTES (64 * MIB)
#define BLOCKS_MAX 4096
#define SAMPLES_MAX 200000

static CUdevice gpu;
static CUmemAllocationProp properties;
static CUmemAccessDesc reach;
static CUmemGenericAllocationHandle handles[BLOCKS_MAX];
static uint64_t samples[SAMPLES_MAX];
static int sample_count;

static void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "%s: %d\n", what, (int)result);
    exit(3);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void note(uint64_t since_ns) {
    if (sample_count < SAMPLES_MAX) samples[sample_count++] = now_ns() - since_ns;
}

static void print_samples(const char *name) {
    printf("%s", name);
    for (int i = 0; i < sample_count; i++)
        printf(" %" PRIu64, samples[i]);
    printf("\n");
    sample_count = 0;
}

static bool input_ended(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

static void set_up(void) {
    CUcontext context;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&gpu, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu};
    reach.location = properties.location;
    reach.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static CUdeviceptr reserved(uint64_t bytes) {
    CUdeviceptr address;
    check(cuMemAddressReserve(&address, bytes, 64 * MIB, 0, 0), "cuMemAddressReserve");
    return address;
}

static void create(uint64_t block, int from, int to) {
    for (int i = from; i < to; i++)
        check(cuMemCreate(&handles[i], block, &properties, 0), "cuMemCreate");
}

static void map(CUdeviceptr address, uint64_t block, int from, int to) {
    for (int i = from; i < to; i++)
        check(cuMemMap(address + block * (uint64_t)i, block, 0, handles[i], 0), "cuMemMap");
}

static void set_access(CUdeviceptr address, uint64_t block, int from, int to, int batch) {
    for (int i = from; i < to; i += batch) {
        const int count = to - i < batch ? to - i : batch;
        check(cuMemSetAccess(address + block * (uint64_t)i, block * (uint64_t)count, &reach, 1),
              "cuMemSetAccess");
    }
}

static void unmap(CUdeviceptr address, uint64_t block, int from, int to, int batch) {
    for (int i = from; i < to; i += batch) {
        const int count = to - i < batch ? to - i : batch;
        check(cuMemUnmap(address + block * (uint64_t)i, block * (uint64_t)count), "cuMemUnmap");
    }
}

static void release(int from, int to) {
    for (int i = from; i < to; i++)
        check(cuMemRelease(handles[i]), "cuMemRelease");
}

static void measure_map(uint64_t block, int blocks, int rounds) {
    static const char *const steps[] = {"create", "map", "set_access", "unmap", "release"};
    const CUdeviceptr address = reserved(block * (uint64_t)blocks);
    for (int batched = 0; batched < 2; batched++) {
        const int batch = batched ? blocks : 1;
        uint64_t took[5][1000];
        for (int round = 0; round < rounds; round++) {
            uint64_t at_ns[6] = {now_ns()};
            create(block, 0, blocks), at_ns[1] = now_ns();
            map(address, block, 0, blocks), at_ns[2] = now_ns();
            set_access(address, block, 0, blocks, batch), at_ns[3] = now_ns();
            unmap(address, block, 0, blocks, batch), at_ns[4] = now_ns();
            release(0, blocks), at_ns[5] = now_ns();
            for (int step = 0; step < 5; step++)
                took[step][round] = at_ns[step + 1] - at_ns[step];
        }
        for (int step = 0; step < 5; step++) {
            printf("%s_%s", steps[step], batched ? "together" : "each");
            for (int round = 0; round < rounds; round++)
                printf(" %" PRIu64, took[step][round]);
            printf("\n");
        }
    }
}

static void measure_trim(uint64_t bytes, int rounds) {
    CUmemoryPool pool;
    CUstream stream;
    CUdeviceptr memory;
    uint64_t kept = UINT64_MAX;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuDeviceGetDefaultMemPool(&pool, gpu), "cuDeviceGetDefaultMemPool");
    check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept), "threshold");
    for (int round = 0; round < rounds; round++) {
        check(cuMemAllocAsync(&memory, bytes, stream), "cuMemAllocAsync");
        check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
        const uint64_t began_ns = now_ns();
        check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
        note(began_ns);
    }
    print_samples("pool_trim");
    for (int round = 0; round < rounds; round++) {
        const uint64_t began_ns = now_ns();
        check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
        note(began_ns);
    }
    print_samples("pool_trim_of_nothing");
    for (int round = 0; round < rounds; round++) {
        CUgraph graph;
        CUgraphExec executable;
        CUgraphNode allocates, frees;
        CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
            .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu}},
            .bytesize = bytes,
        };
        check(cuGraphCreate(&graph, 0), "cuGraphCreate");
        check(cuGraphAddMemAllocNode(&allocates, graph, NULL, 0, &wanted), "alloc node");
        check(cuGraphAddMemFreeNode(&frees, graph, &allocates, 1, wanted.dptr), "free node");
        check(cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
        check(cuGraphLaunch(executable, stream), "cuGraphLaunch");
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
        check(cuGraphExecDestroy(executable), "cuGraphExecDestroy");
        check(cuGraphDestroy(graph), "cuGraphDestroy");
        const uint64_t began_ns = now_ns();
        check(cuDeviceGraphMemTrim(gpu), "cuDeviceGraphMemTrim");
        note(began_ns);
    }
    print_samples("graph_trim");
}

static void measure_compute(double seconds) {
    CUmodule module;
    CUfunction work;
    CUdeviceptr out;
    unsigned rounds = COMPUTING_ROUNDS;
    check(cuModuleLoadData(&module, computing), "cuModuleLoadData");
    check(cuModuleGetFunction(&work, module, "work"), "cuModuleGetFunction");
    check(cuMemAlloc(&out, 4), "cuMemAlloc");
    void *arguments[] = {&out, &rounds};
    const uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end_ns) {
        const uint64_t began_ns = now_ns();
        check(cuLaunchKernel(work, COMPUTING_BLOCKS, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL),
              "launch");
        check(cuCtxSynchronize(), "cuCtxSynchronize");
        note(began_ns);
    }
    print_samples("compute");
}

static void measure_copy(double seconds) {
    CUdeviceptr memory[2];
    void *host;
    check(cuMemAlloc(&memory[0], COPY_BYTES), "cuMemAlloc");
    check(cuMemAlloc(&memory[1], COPY_BYTES), "cuMemAlloc");
    check(cuMemHostAlloc(&host, COPY_BYTES, 0), "cuMemHostAlloc");
    memset(host, 1, COPY_BYTES);
    for (int to_device = 0; to_device < 2; to_device++) {
        const uint64_t end_ns = now_ns() + (uint64_t)(seconds * 5e8);
        while (now_ns() < end_ns) {
            const uint64_t began_ns = now_ns();
            if (to_device)
                check(cuMemcpyHtoDAsync(memory[0], host, COPY_BYTES, NULL), "copy in");
            else
                for (int i = 0; i < 32; i++)
                    check(cuMemcpyDtoDAsync(memory[0], memory[1], COPY_BYTES, NULL), "copy");
            check(cuCtxSynchronize(), "cuCtxSynchronize");
            note(began_ns);
        }
        print_samples(to_device ? "copy_in" : "copy_on_device");
    }
}

static void measure_alloc(double seconds) {
    const uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end_ns) {
        CUdeviceptr memory;
        const uint64_t began_ns = now_ns();
        check(cuMemAlloc(&memory, 2 * MIB), "cuMemAlloc");
        note(began_ns);
        check(cuMemFree(memory), "cuMemFree");
    }
    print_samples("alloc");
}

static unsigned char *pinned(uint64_t bytes) {
    void *memory;
    check(cuMemHostAlloc(&memory, bytes, 0), "cuMemHostAlloc");
    memset(memory, 1, bytes);
    return memory;
}

static void begin(void) {
    printf("ready\n");
    fflush(stdout);
}

static void keep_copying(void) {
    CUdeviceptr memory[2];
    CUstream streams[2];
    unsigned char *host[2];
    uint64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        host[i] = pinned(1024 * MIB);
        check(cuMemAlloc(&memory[i], 1024 * MIB), "cuMemAlloc");
        check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    begin();
    const uint64_t began_ns = now_ns();
    for (; !input_ended(); bytes += 2048 * MIB) {
        check(cuMemcpyDtoHAsync(host[0], memory[0], 1024 * MIB, streams[0]), "copy out");
        check(cuMemcpyHtoDAsync(memory[1], host[1], 1024 * MIB, streams[1]), "copy in");
        check(cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
        check(cuStreamSynchronize(streams[1]), "cuStreamSynchronize");
    }
    printf("copies %" PRIu64 " %" PRIu64 "\n", bytes, now_ns() - began_ns);
}

static void measure_both(double seconds) {
    CUdeviceptr memory[2];
    CUstream streams[2];
    unsigned char *host[2];
    for (int i = 0; i < 2; i++) {
        host[i] = pinned(1024 * MIB);
        check(cuMemAlloc(&memory[i], 1024 * MIB), "cuMemAlloc");
        check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    const uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end_ns) {
        const uint64_t began_ns = now_ns();
        check(cuMemcpyDtoHAsync(host[0], memory[0], 1024 * MIB, streams[0]), "copy out");
        check(cuMemcpyHtoDAsync(memory[1], host[1], 1024 * MIB, streams[1]), "copy in");
        check(cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
        check(cuStreamSynchronize(streams[1]), "cuStreamSynchronize");
        note(began_ns);
    }
    print_samples("both_ways");
}

static void keep_mapping(uint64_t block, double gbps, bool makes) {
    const CUdeviceptr address = reserved(block);
    uint64_t bytes = 0;
    if (!makes) create(block, 0, 1);
    begin();
    const uint64_t began_ns = now_ns();
    while (!input_ended()) {
        if (makes) create(block, 0, 1);
        map(address, block, 0, 1);
        set_access(address, block, 0, 1, 1);
        unmap(address, block, 0, 1, 1);
        if (makes) release(0, 1);
        bytes += block;
        while ((double)(now_ns() - began_ns) < (double)bytes / gbps)
            usleep(20);
    }
    printf("mapping %" PRIu64 " %" PRIu64 "\n", bytes, now_ns() - began_ns);
}

/* In and out in turn; only the way in is measured. */
static void keep_restoring(uint64_t block, int batch) {
    const int blocks = (int)(RESTORED_BYTES / block);
    const CUdeviceptr address = reserved(block * (uint64_t)blocks);
    unsigned char *host = pinned(2048 * MIB);
    uint64_t bytes = 0, in_ns = 0;
    CUstream stream;
    if (blocks > BLOCKS_MAX) exit(2);
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    begin();
    while (!input_ended()) {
        const uint64_t began_ns = now_ns();
        for (int i = 0; i < blocks; i += batch) {
            const int to = i + batch < blocks ? i + batch : blocks;
            create(block, i, to);
            map(address, block, i, to);
            set_access(address, block, i, to, batch);
            for (int each = i; each < to; each++)
                check(cuMemcpyHtoDAsync(address + block * (uint64_t)each,
                                        host + block * (uint64_t)each % (2048 * MIB - block), block,
                                        stream),
                      "copy in");
        }
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
        in_ns += now_ns() - began_ns;
        bytes += block * (uint64_t)blocks;
        unmap(address, block, 0, blocks, batch);
        release(0, blocks);
    }
    printf("restore %" PRIu64 " %" PRIu64 "\n", bytes, in_ns);
}

int main(int count, char **arguments) {
    const char *what = count > 2 ? arguments[1] : "";
    set_up();
    if (!strcmp(what, "map") && count == 5 && atoi(arguments[3]) <= BLOCKS_MAX)
        measure_map(strtoull(arguments[2], NULL, 10), atoi(arguments[3]), atoi(arguments[4]));
    else if (!strcmp(what, "trim") && count == 4)
        measure_trim(strtoull(arguments[2], NULL, 10), atoi(arguments[3]));
    else if (!strcmp(what, "compute"))
        measure_compute(atof(arguments[2]));
    else if (!strcmp(what, "copy"))
        measure_copy(atof(arguments[2]));
    else if (!strcmp(what, "alloc"))
        measure_alloc(atof(arguments[2]));
    else if (!strcmp(what, "both"))
        measure_both(atof(arguments[2]));
    else if ((!strcmp(what, "churn") || !strcmp(what, "remap")) && count == 4)
        keep_mapping(strtoull(arguments[2], NULL, 10), atof(arguments[3]), what[0] == 'c');
    else if (!strcmp(what, "copies"))
        keep_copying();
    else if (!strcmp(what, "restore") && count == 4)
        keep_restoring(strtoull(arguments[2], NULL, 10), atoi(arguments[3]));
    else
        return 2;
    return 0;
}
