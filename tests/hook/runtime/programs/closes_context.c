/* Opens a device, launches once, and gives the device up when told to. */
#include "gpu.h"

int main(void) {
    struct gpu gpu = gpu_open(0);
    check(gpu_spin(&gpu, NULL, 1000), "launch");
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
