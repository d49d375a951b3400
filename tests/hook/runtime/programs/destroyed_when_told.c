/* A thread destroys each stream as soon as the device tells it that the work is done, while the
 * thread that put the work there may still be on its way out of its last call. Says "right" when
 * all of them have gone. */
#include <pthread.h>
#include <stdatomic.h>

#include "gpu.h"

#define ROUNDS 400

static struct gpu gpu;
static _Atomic(CUstream) done;
static _Atomic int destroyed;

static void CUDA_CB tell(void *stream) {
    atomic_store(&done, (CUstream)stream);
}

static void *destroy(void *unused) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        while ((stream = atomic_exchange(&done, NULL)) == NULL)
            continue;
        check(cuStreamDestroy(stream), "cuStreamDestroy");
        atomic_fetch_add(&destroyed, 1);
    }
    return unused;
}

int main(void) {
    pthread_t destroyer;
    gpu = gpu_open(0);
    if (pthread_create(&destroyer, NULL, destroy, NULL) != 0) return 4;
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(cuLaunchHostFunc(stream, tell, stream), "cuLaunchHostFunc");
        while (atomic_load(&destroyed) <= round)
            continue;
    }
    pthread_join(destroyer, NULL);
    puts("right");
    return 0;
}
