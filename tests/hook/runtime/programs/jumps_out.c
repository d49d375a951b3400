/* An allocation waits while SIGINT comes, whose handler jumps out of the wait. The stack is used
 * for something else then, and each line of input allocates as much again. */
#include <setjmp.h>
#include <signal.h>

#include "gpu.h"

#define BYTES (64u << 20)

static sigjmp_buf before;

static void jumps(int number) {
    siglongjmp(before, number);
}

static __attribute__((noinline)) void use_stack(void) {
    volatile char used[16384];
    for (unsigned i = 0; i < sizeof used; i++)
        used[i] = 0x41;
}

static __attribute__((noinline)) int allocate_deeper(void) {
    volatile char used[16384];
    CUdeviceptr memory;
    used[0] = (char)cuMemAlloc(&memory, BYTES);
    return used[0];
}

int main(void) {
    char line[8];
    CUdeviceptr memory;
    signal(SIGINT, jumps);
    gpu_open(0);
    if (sigsetjmp(before, 1) == 0) return (int)cuMemAlloc(&memory, BYTES) + 1;
    printf("jumped\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        use_stack();
        printf("allocated %d\n", allocate_deeper());
        fflush(stdout);
    }
    return 0;
}
