/* A call about memory that is parked waits for the turn while SIGINT comes, whose handler jumps out
 * of the wait. The argument says which one: map or export. Each line of input lets it go on. */
#include <setjmp.h>
#include <signal.h>
#include <string.h>

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

int main(int count, char **arguments) {
    char line[8];
    int descriptor;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    };
    if (count != 2) return 2;
    const int maps = strcmp(arguments[1], "map") == 0;
    gpu_open(0);
    check(cuMemAddressReserve(&address, BYTES, 0, 0, 0), "cuMemAddressReserve");
    say("created", cuMemCreate(&handle, BYTES, &properties, 0));
    if (fgets(line, sizeof line, stdin) == NULL) return 3;
    signal(SIGINT, jumps);
    if (sigsetjmp(before, 1) == 0)
        say("not interrupted",
            maps ? cuMemMap(address, BYTES, 0, handle, 0)
                 : cuMemExportToShareableHandle(&descriptor, handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    else
        say("jumped", 0);
    say("released", cuMemRelease(handle));
    return fgets(line, sizeof line, stdin) == NULL ? 3 : 0;
}
