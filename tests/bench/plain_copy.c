/* What the bus can do, with nothing in between: pinned copies one way, the other way, and both ways
 * at once. usage: plain_copy BYTES ROUNDS. One line for each kind: its name, and for each round how
 * many nanoseconds so many bytes (each way) took.
 *
 * Host memory is got as whoever is in a hurry gets it: huge pages, faulted in by several threads,
 * then registered. Two buffers of at most 4 GiB, that fit where one client's memory does, are
 * copied as often as it takes. */
#define _GNU_SOURCE
#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BUFFER_BYTES_MAX ((uint64_t)4 << 30)
#define FAULTING_THREADS 8

enum direction { OUT = 1, IN = 2 };

static uint64_t bytes;
static uint64_t buffer_bytes;
static unsigned char *host[2];
static CUdeviceptr device[2];
static CUstream streams[2];

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

static void *fault_in(void *part) {
    memset(part, 1, buffer_bytes / FAULTING_THREADS);
    return NULL;
}

static unsigned char *pinned(void) {
    pthread_t threads[FAULTING_THREADS];
    void *memory =
        mmap(NULL, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(4);
    madvise(memory, buffer_bytes, MADV_HUGEPAGE);
    for (int i = 0; i < FAULTING_THREADS; i++) {
        unsigned char *part = (unsigned char *)memory + buffer_bytes / FAULTING_THREADS * (size_t)i;
        if (pthread_create(&threads[i], NULL, fault_in, part) != 0) exit(4);
    }
    for (int i = 0; i < FAULTING_THREADS; i++)
        pthread_join(threads[i], NULL);
    check(cuMemHostRegister(memory, buffer_bytes, CU_MEMHOSTREGISTER_PORTABLE), "register");
    return memory;
}

static void set_up(void) {
    CUdevice gpu;
    CUcontext context;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&gpu, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int i = 0; i < 2; i++) {
        host[i] = pinned();
        check(cuMemAlloc(&device[i], buffer_bytes), "cuMemAlloc");
        check(cuMemsetD8(device[i], 2, buffer_bytes), "cuMemsetD8"); /* memory that is there */
        check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static uint64_t copy_ns(int directions) {
    uint64_t began_ns = now_ns();
    for (uint64_t left = bytes; left > 0;) {
        uint64_t part = left < buffer_bytes ? left : buffer_bytes;
        if (directions & OUT)
            check(cuMemcpyDtoHAsync(host[0], device[0], part, streams[0]), "copy out");
        if (directions & IN)
            check(cuMemcpyHtoDAsync(device[1], host[1], part, streams[1]), "copy in");
        left -= part;
    }
    check(cuStreamSynchronize(streams[0]), "cuStreamSynchronize");
    check(cuStreamSynchronize(streams[1]), "cuStreamSynchronize");
    return now_ns() - began_ns;
}

int main(int count, char **arguments) {
    static const char *const names[] = {[OUT] = "out", [IN] = "in", [OUT | IN] = "both"};
    if (count != 3) return 2;
    bytes = strtoull(arguments[1], NULL, 10);
    buffer_bytes = bytes / 2 < BUFFER_BYTES_MAX ? bytes / 2 : BUFFER_BYTES_MAX;
    int rounds = atoi(arguments[2]);
    set_up();
    for (int directions = OUT; directions <= (OUT | IN); directions++) {
        printf("%s", names[directions]);
        for (int i = 0; i < rounds; i++)
            printf(" %" PRIu64, copy_ns(directions));
        printf("\n");
    }
    return 0;
}
