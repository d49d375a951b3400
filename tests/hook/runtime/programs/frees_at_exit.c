/* Holds memory. At the end of its input it returns from main while another thread frees all of it;
 * a handler of exit that runs after the hook's own waits for that thread. */
#include <pthread.h>
#include <time.h>

#include "gpu.h"

#define COUNT 4

static CUdeviceptr held[COUNT];
static pthread_t thread;
static CUcontext context;

static void *free_all(void *nothing) {
    int freed = 0;
    cuCtxSetCurrent(context);
    printf("begins\n");
    fflush(stdout);
    for (int i = 0; i < COUNT; i++)
        freed += cuMemFree(held[i]) == CUDA_SUCCESS;
    printf("freed %d\n", freed);
    fflush(stdout);
    return nothing;
}

static void join(void) {
    pthread_join(thread, NULL);
    printf("joined\n");
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    atexit(join); /* before the hook's own handler, so it runs after that */
    gpu_open(0);
    cuCtxGetCurrent(&context);
    for (int i = 0; i < COUNT; i++)
        check(cuMemAlloc(&held[i], strtoull(arguments[1], NULL, 10)), "cuMemAlloc");
    printf("holds\n");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
    }
    pthread_create(&thread, NULL, free_all, NULL);
    struct timespec pause = {0, 100000000};
    nanosleep(&pause, NULL);
    return 0;
}
