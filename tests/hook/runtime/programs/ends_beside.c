/* One thread ends a context, in which there is memory whose free was put off, and work of a stream
 * that was destroyed. Another thread works in another context meanwhile, as its argument says: it
 * ends a capture, with which the free is made up for, or destroys a stream. */
#include <pthread.h>
#include <string.h>

#include "gpu.h"

static CUcontext ending;

static void *end(void *nothing) {
    check(cuCtxDestroy(ending), "cuCtxDestroy");
    return nothing;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    struct gpu gpu = gpu_open(0);
    CUdeviceptr memory;
    CUstream worked, capturing, other;
    CUgraph graph;
    pthread_t thread;
    char line[8];
    check(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuCtxCreate(&ending, NULL, 0, 0), "cuCtxCreate");
    check(cuMemAlloc(&memory, 4 << 20), "cuMemAlloc");
    check(cuStreamCreate(&worked, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuMemsetD8Async(memory, 1, 4 << 20, worked), "cuMemsetD8Async");
    check(cuStreamDestroy(worked), "cuStreamDestroy");
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    check(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    check(cuMemFree(memory), "cuMemFree");
    pthread_create(&thread, NULL, end, NULL);
    if (fgets(line, sizeof line, stdin) == NULL) return 3;
    if (strcmp(arguments[1], "free") == 0) check(cuStreamEndCapture(capturing, &graph), "end");
    if (strcmp(arguments[1], "stream") == 0) check(cuStreamDestroy(other), "cuStreamDestroy");
    printf("done\n");
    fflush(stdout);
    pthread_join(thread, NULL);
    printf("ended\n");
    return 0;
}
