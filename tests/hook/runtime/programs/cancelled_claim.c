/* A thread that is cancelled, as the default is, while its allocation waits for memory; with an
 * argument, while it launches more than may be in flight. */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "gpu.h"

#define BYTES ((size_t)64 << 20)
#define SPIN_NS 20000000u
#define SPINS 200

static void *allocate(void *gpu) {
    CUdeviceptr address;
    check(cuCtxSetCurrent(((const struct gpu *)gpu)->context), "cuCtxSetCurrent");
    check(cuMemAlloc(&address, BYTES), "cuMemAlloc");
    check(cuMemFree(address), "cuMemFree");
    printf("allocated\n");
    pthread_testcancel();
    printf("not cancelled\n");
    return NULL;
}

static void *launch(void *gpu) {
    check(cuCtxSetCurrent(((const struct gpu *)gpu)->context), "cuCtxSetCurrent");
    for (int i = 0; i < SPINS; i++) {
        check(gpu_spin(gpu, NULL, SPIN_NS), "launch");
        if (i == 0) printf("launched\n");
        pthread_testcancel();
    }
    printf("not cancelled\n");
    return NULL;
}

int main(int count, char **arguments) {
    char line[16];
    (void)arguments;
    pthread_t thread;
    setlinebuf(stdout);
    struct gpu gpu = gpu_open(0);
    if (pthread_create(&thread, NULL, count > 1 ? launch : allocate, &gpu) != 0) return 1;
    if (fgets(line, sizeof line, stdin) == NULL) return 1;
    pthread_cancel(thread);
    printf("cancels\n");
    pthread_join(thread, NULL);
    printf("ended\n");
    return fgets(line, sizeof line, stdin) == NULL;
}
