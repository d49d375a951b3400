/* Opens a device, launches once for so many nanoseconds, and gives the device up when told to. */
#include "gpu.h"

int main(int count, char **arguments) {
    if (count != 2) return 2;
    struct gpu gpu = gpu_open(0);
    check(gpu_spin(&gpu, NULL, strtoull(arguments[1], NULL, 10)), "launch");
    printf("launched\n");
    fflush(stdout);
    getchar();
    check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
    printf("released\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
