/* A thread that is cancelled, as the default is, while its allocation waits for memory. */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "gpu.h"

#define BYTES ((size_t)64 << 20)

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

int main(void) {
    char line[16];
    pthread_t thread;
    setlinebuf(stdout);
    struct gpu gpu = gpu_open(0);
    if (pthread_create(&thread, NULL, allocate, &gpu) != 0) return 1;
    if (fgets(line, sizeof line, stdin) == NULL) return 1;
    pthread_cancel(thread);
    printf("cancels\n");
    pthread_join(thread, NULL);
    printf("ended\n");
    return fgets(line, sizeof line, stdin) == NULL;
}
