/* Two threads capture in their own default streams, each in a context of its own. The second one
 * ends its capture; the first one, when it is told to. */
#include <pthread.h>

#include "gpu.h"

static CUcontext other;

static void *captures_and_ends(void *nothing) {
    CUgraph graph;
    check(cuCtxSetCurrent(other), "cuCtxSetCurrent");
    check(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    check(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), "cuStreamEndCapture");
    return nothing;
}

int main(void) {
    struct gpu gpu = gpu_open(0);
    pthread_t thread;
    CUgraph graph;
    CUdevice device;
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuCtxCreate(&other, NULL, 0, device), "cuCtxCreate");
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    check(gpu_spin(&gpu, NULL, 1000), "spin");
    check(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    pthread_create(&thread, NULL, captures_and_ends, NULL);
    pthread_join(thread, NULL);
    puts("captures");
    fflush(stdout);
    getchar();
    check(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), "cuStreamEndCapture");
    puts("right");
    return 0;
}
