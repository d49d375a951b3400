#include <setjmp.h>
#include <signal.h>
#include "gpu.h"
#define BYTES (64u << 20)
static sigjmp_buf before;
static void jumps(int n) { siglongjmp(before, n); }
int main(void) {
    char line[8];
    CUdeviceptr at; CUmemGenericAllocationHandle h;
    const CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    gpu_open(0);
    printf("opened\n"); fflush(stdout);
    printf("created %d\n", cuMemCreate(&h, BYTES, &p, 0)); fflush(stdout);
    cuMemAddressReserve(&at, BYTES, 0, 0, 0);
    if (!fgets(line, sizeof line, stdin)) return 1;
    signal(SIGINT, jumps);
    if (sigsetjmp(before, 1) == 0) { printf("mapping\n"); fflush(stdout); printf("mapped %d\n", cuMemMap(at, BYTES, 0, h, 0)); }
    else printf("jumped\n");
    fflush(stdout);
    printf("released %d\n", cuMemRelease(h)); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    return 0;
}
