/* A context that is destroyed while it is current in another thread, which goes on to call. With an
 * argument it launches something before that. */
#include <pthread.h>

#include "gpu.h"

static CUcontext context;
static pthread_barrier_t both;

static void *calls(void *nothing) {
    CUdeviceptr address;
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    const int allocates = (int)cuMemAlloc(&address, 1 << 20);
    const int launches = (int)cuMemsetD32Async(4096, 0, 1, NULL);
    const int copies = (int)cuMemcpyHtoD(4096, &allocates, sizeof allocates);
    printf("hears %d %d %d\n", allocates, launches, copies);
    fflush(stdout);
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t thread;
    (void)arguments;
    struct gpu gpu = gpu_open(0);
    if (count > 1) check(gpu_spin(&gpu, NULL, 1000), "launch");
    pthread_barrier_init(&both, NULL, 2);
    check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
    pthread_create(&thread, NULL, calls, NULL);
    pthread_barrier_wait(&both);
    printf("opened\n");
    fflush(stdout);
    if (getchar() == EOF) return 2;
    check(cuCtxDestroy(context), "cuCtxDestroy");
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    check(gpu_spin(&gpu, NULL, 1000), "launch");
    printf("works\n");
    return 0;
}
