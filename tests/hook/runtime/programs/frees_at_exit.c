/* Holds memory, and frees it with its context in a handler of exit that runs after the hook's own.
 */
#include "gpu.h"

#define COUNT 4

static CUdeviceptr held[COUNT];

static void clean_up(void) {
    int freed = 0;
    for (int i = 0; i < COUNT; i++)
        freed += cuMemFree(held[i]) == CUDA_SUCCESS;
    printf("freed %d, context %d\n", freed, (int)cuDevicePrimaryCtxReset(0));
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    atexit(clean_up); /* before the hook's own handler, so it runs after that */
    gpu_open(0);
    for (int i = 0; i < COUNT; i++)
        check(cuMemAlloc(&held[i], strtoull(arguments[1], NULL, 10)), "cuMemAlloc");
    printf("holds\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
