/* Holds memory in which every word says where it lies, and saves all of it from a handler of exit
 * that runs after the hook's own: by the call that its second argument names. A third one has it
 * allocated in a stream. A line "launch" lets a thread launch something. */
#include <pthread.h>
#include <string.h>

#include "gpu.h"

#define COUNT 4
#define PITCH 4096u

static struct gpu gpu;
static CUdeviceptr held[COUNT];
static size_t bytes;
static const char *way;

static CUresult save(uint32_t *to, CUdeviceptr from) {
    if (strcmp(way, "plain") == 0) return cuMemcpyDtoH(to, from, bytes);
    if (strcmp(way, "unified") == 0) return cuMemcpy((CUdeviceptr)to, from, bytes);
    if (strcmp(way, "stream") == 0) {
        CUresult result = cuMemcpyDtoHAsync(to, from, bytes, NULL);
        return result != CUDA_SUCCESS ? result : cuStreamSynchronize(NULL);
    }
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .srcPitch = PITCH,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .dstPitch = PITCH,
        .WidthInBytes = PITCH,
        .Height = bytes / PITCH,
    };
    return cuMemcpy2D(&rows);
}

static void save_all(void) {
    uint32_t *words = malloc(bytes);
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t wrong = 0;
        memset(words, 0xff, bytes);
        const CUresult result = save(words, held[i]);
        for (size_t j = 0; j < bytes / 4; j++)
            wrong += words[j] != (i << 28 | (uint32_t)j);
        printf("saved %d, wrong %zu\n", (int)result, wrong);
    }
    fflush(stdout);
}

static void *launch(void *nothing) {
    cuCtxSetCurrent(gpu.context);
    gpu_spin(&gpu, NULL, 1000);
    return nothing;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    bytes = strtoull(arguments[1], NULL, 10);
    way = arguments[2];
    atexit(save_all); /* before the hook's own handler, so it runs after that */
    gpu = gpu_open(0);
    uint32_t *words = malloc(bytes);
    for (uint32_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < bytes / 4; j++)
            words[j] = i << 28 | (uint32_t)j;
        check(count > 3 ? cuMemAllocAsync(&held[i], bytes, NULL) : cuMemAlloc(&held[i], bytes),
              "allocation");
        check(cuMemcpyHtoD(held[i], words, bytes), "cuMemcpyHtoD");
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("holds\n");
    fflush(stdout);
    char line[16];
    pthread_t thread;
    while (fgets(line, sizeof line, stdin) != NULL)
        pthread_create(&thread, NULL, launch, NULL);
    return 0;
}
