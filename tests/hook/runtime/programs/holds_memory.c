/* Holds memory. A line "free" frees it, "reset" resets the device; with the argument "exit" a
 * handler of exit that runs after the hook's own does both. */
#include <string.h>

#include "gpu.h"

#define COUNT 4

static CUdeviceptr held[COUNT];

static void free_all(void) {
    int freed = 0;
    for (int i = 0; i < COUNT; i++)
        freed += cuMemFree(held[i]) == CUDA_SUCCESS;
    printf("freed %d\n", freed);
    fflush(stdout);
}

static void reset(void) {
    printf("reset %d\n", (int)cuDevicePrimaryCtxReset(0));
    fflush(stdout);
}

static void clean_up(void) {
    free_all();
    reset();
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    if (count == 3) atexit(clean_up); /* before the hook's own handler, so it runs after that */
    gpu_open(0);
    for (int i = 0; i < COUNT; i++)
        check(cuMemAlloc(&held[i], strtoull(arguments[1], NULL, 10)), "cuMemAlloc");
    printf("holds\n");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "free\n") == 0) free_all();
        if (strcmp(line, "reset\n") == 0) {
            reset();
            gpu_open(0);
        }
    }
    return 0;
}
