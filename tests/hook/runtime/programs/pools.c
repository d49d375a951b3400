/* Threads that share a pool of limited size: each allocates in streams of its own, writes a number
 * of its own, reads it behind some work and frees, while streams come and go and some capture.
 * Arguments: threads, rounds, and the size of the pool in MiB. Says how many numbers were wrong,
 * and ends when it is told to. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "gpu.h"

#define PLACES 8

static struct gpu gpu;
static CUmemoryPool pool;
static int rounds;
static atomic_int wrong, taken;

struct place {
    uint32_t *host;
    uint32_t number;
};

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static CUstream fresh_stream(void) {
    CUstream stream;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    return stream;
}

static void use(CUstream stream, size_t bytes, struct place *place, uint32_t number) {
    CUdeviceptr at;
    uint64_t words = 16;
    place->number = 0;
    const CUresult result = cuMemAllocFromPoolAsync(&at, bytes, pool, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return;
    check(result, "allocate");
    void *arguments[] = {&at, &number, &words};
    check(cuLaunchKernel(gpu.fill, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "fill");
    check(gpu_spin(&gpu, stream, 20000), "spin");
    check(cuMemcpyDtoHAsync(place->host, at, sizeof number, stream), "copy");
    check(cuMemFreeAsync(at, stream), "free");
    place->number = number;
    atomic_fetch_add(&taken, 1);
}

static void look(CUstream stream, struct place *places) {
    check(cuStreamSynchronize(stream), "synchronise");
    for (int i = 0; i < PLACES; i++)
        if (places[i].number != 0 && *places[i].host != places[i].number)
            atomic_fetch_add(&wrong, 1);
    for (int i = 0; i < PLACES; i++)
        places[i].number = 0;
}

static void capture(CUstream stream) {
    CUgraph graph;
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    check(gpu_spin(&gpu, stream, 1000), "captured");
    check(cuStreamEndCapture(stream, &graph), "end");
    check(cuGraphDestroy(graph), "graph");
}

static void *work(void *argument) {
    uint32_t seed = (uint32_t)(uintptr_t)argument * 7919u + 1;
    uint32_t number = (uint32_t)(uintptr_t)argument << 20;
    struct place places[PLACES + 1] = {0}; /* nobody looks at the last one */
    check(cuCtxSetCurrent(gpu.context), "current");
    for (int i = 0; i <= PLACES; i++)
        check(cuMemHostAlloc((void **)&places[i].host, sizeof(uint32_t), 0), "host");
    CUstream own = fresh_stream();
    for (int i = 0; i < rounds; i++) {
        CUstream stream = next(&seed) % 4 == 0 ? CU_STREAM_PER_THREAD : own;
        for (int j = 0; j < PLACES; j++)
            use(stream, (size_t)4096 << next(&seed) % 14, &places[j], ++number);
        if (next(&seed) % 5 == 0) check(cuMemPoolTrimTo(pool, 0), "trim");
        if (next(&seed) % 9 == 0) capture(own);
        look(stream, places);
        if (next(&seed) % 3 != 0) continue;
        use(own, (size_t)8 << 20, &places[PLACES], ++number);
        check(cuStreamDestroy(own), "destroy");
        own = fresh_stream();
    }
    check(cuStreamSynchronize(own), "last");
    return NULL;
}

int main(int count, char **words) {
    pthread_t threads[16];
    if (count != 4) return 2;
    const int used = atoi(words[1]) < 16 ? atoi(words[1]) : 16;
    rounds = atoi(words[2]);
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .maxSize = strtoull(words[3], NULL, 10) << 20,
    };
    gpu = gpu_open(0);
    check(cuMemPoolCreate(&pool, &properties), "pool");
    for (int i = 0; i < used; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < used; i++)
        pthread_join(threads[i], NULL);
    check(cuCtxSynchronize(), "synchronise all");
    check(cuMemPoolTrimTo(pool, 0), "trim all");
    cuuint64_t left = 1;
    check(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &left), "reserved");
    printf("wrong %d, left %llu, %s\n", atomic_load(&wrong), (unsigned long long)left,
           atomic_load(&taken) > rounds ? "much" : "little");
    fflush(stdout);
    return getchar() == EOF;
}
