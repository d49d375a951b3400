/* Threads that launch without a pause until stdin closes: recalls THREADS SPIN_NS. Every third
 * thread uses its own default stream, every third the legacy stream, the others one they made. */
#include <pthread.h>
#include <stdatomic.h>

#include "gpu.h"

static struct gpu gpu;
static uint64_t spin_ns;
static _Atomic int stop;
static _Atomic unsigned long launches;

static void *work(void *pointer) {
    long number = (long)pointer;
    CUstream stream = number % 3 == 0 ? CU_STREAM_PER_THREAD : NULL;
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    if (number % 3 == 2) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    while (!atomic_load(&stop)) {
        check(gpu_spin(&gpu, stream, spin_ns), "launch");
        atomic_fetch_add(&launches, 1);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    long threads = atol(arguments[1]);
    spin_ns = strtoull(arguments[2], NULL, 10);
    gpu = gpu_open(0);
    pthread_t handles[64];
    for (long i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, work, (void *)i);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    atomic_store(&stop, 1);
    for (long i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("launches %lu\n", atomic_load(&launches));
    return 0;
}
