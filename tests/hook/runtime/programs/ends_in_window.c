/* One thread ends a context that has work in as many streams as a thread's window remembers. The
 * thread that launched the work launches in another context meanwhile. */
#include <pthread.h>

#include "gpu.h"

#define STREAMS 16

static CUcontext ending;

static void *end(void *nothing) {
    check(cuCtxDestroy(ending), "cuCtxDestroy");
    return nothing;
}

int main(void) {
    struct gpu gpu = gpu_open(0);
    CUstream stream, other;
    CUdeviceptr flag_there;
    CUmodule module;
    CUfunction poll_flag;
    pthread_t thread;
    void *flag;
    char line[8];
    check(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuMemHostAlloc(&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE), "host");
    check(cuMemHostGetDevicePointer(&flag_there, flag, 0), "cuMemHostGetDevicePointer");
    check(cuCtxCreate(&ending, NULL, 0, 0), "cuCtxCreate");
    check(cuModuleLoadData(&module, read_text(BUILTINS_PTX)), "cuModuleLoadData");
    check(cuModuleGetFunction(&poll_flag, module, "poll_flag"), "poll_flag");
    for (int i = 0; i < STREAMS; i++) {
        void *arguments[] = {&flag_there};
        check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(cuLaunchKernel(poll_flag, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "launch");
    }
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    pthread_create(&thread, NULL, end, NULL);
    if (fgets(line, sizeof line, stdin) == NULL) return 3;
    check(gpu_spin(&gpu, other, 1000), "cuLaunchKernel");
    *(volatile uint32_t *)flag = 1;
    printf("done\n");
    fflush(stdout);
    pthread_join(thread, NULL);
    printf("ended\n");
    return 0;
}
