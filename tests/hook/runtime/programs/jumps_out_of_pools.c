/* An allocation from a pool whose memory is parked waits for the turn while SIGINT comes, whose
 * handler jumps out of the wait. Then the pool goes. Each line of input lets it go on. */
#include <setjmp.h>
#include <signal.h>

#include "gpu.h"

#define BYTES (64u << 20)

static sigjmp_buf before;

static void jumps(int number) {
    siglongjmp(before, number);
}

static void say(const char *what, int result) {
    printf("%s %d\n", what, result);
    fflush(stdout);
}

int main(void) {
    char line[8];
    CUdeviceptr first, second;
    CUmemoryPool pool;
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    gpu_open(0);
    check(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
    say("created", cuMemAllocFromPoolAsync(&first, BYTES, pool, 0));
    if (fgets(line, sizeof line, stdin) == NULL) return 3;
    signal(SIGINT, jumps);
    if (sigsetjmp(before, 1) == 0)
        say("not interrupted", cuMemAllocFromPoolAsync(&second, BYTES, pool, 0));
    else
        say("jumped", 0);
    say("freed", cuMemFreeAsync(first, 0));
    say("destroyed", cuMemPoolDestroy(pool));
    say("waited", cuCtxSynchronize());
    cuMemAllocAsync(&second, BYTES, 0);
    return fgets(line, sizeof line, stdin) == NULL ? 3 : 0;
}
