/* A thread that is cancelled inside a gated call, and another that takes its place. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static _Atomic int waits;

static void *copy(void *nothing) {
    int before;
    CUdeviceptr device;
    static char host[16];
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    check(cuMemAlloc(&device, sizeof(host)), "cuMemAlloc");
    check(gpu_spin(&gpu, NULL, 500000000), "launch");
    atomic_store(&waits, 1);
    cuMemcpyDtoH(host, device, sizeof(host)); /* until the launch is over: here it is cancelled */
    return nothing;
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    printf("launch %d\n", (int)gpu_spin(&gpu, NULL, 1000));
    fflush(stdout);
    return nothing;
}

static void run(void *(*work)(void *), int cancel) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    while (cancel && !atomic_load(&waits))
        usleep(1000);
    if (cancel) usleep(100000); /* it enters the call, which lasts much longer */
    if (cancel) pthread_cancel(thread);
    pthread_join(thread, NULL);
}

int main(void) {
    gpu = gpu_open(0);
    run(copy, 1);
    printf("cancelled\n");
    fflush(stdout);
    while (getchar() != '\n')
        continue;
    run(launch, 0);
    return 0;
}
