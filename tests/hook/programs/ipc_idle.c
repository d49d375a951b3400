/* A thread looks for blocks that nobody has had for a second, and is held up between the clock and
 * the table; meanwhile the block is given away anew. Prints whether it is still shared. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL /* every exported name as it is */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocate/backing.h"
#include "base/symbols.h"
#include "memory/blocks.h"
#include "sharing/ipc.h"
#include "sharing/ipc_exports.h"
#include "surface/context_calls.h"

#define SECOND_NS 1000000000u
#define HELD_UP_MS 300 /* at most: the other may need what this thread holds */

/* The driver's own functions, found as the hook finds them. */
#define REAL(name) ((__typeof__(&name))symbols_real_of(SYMBOLS_CUDA, #name, true))

static _Thread_local bool is_slow;
static _Atomic bool has_read, is_given;

int clock_gettime(clockid_t clock, struct timespec *now) {
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (is_slow) atomic_store(&has_read, true);
    for (int i = 0; is_slow && i < HELD_UP_MS && !atomic_load(&is_given); i++)
        usleep(1000);
    return result;
}

static void *look(void *argument) {
    is_slow = true;
    exports_let_go(SECOND_NS);
    return argument;
}

static int open_device(void) {
    CUcontext context;
    int result = REAL(cuInit)(0);
    if (result == CUDA_SUCCESS) result = REAL(cuDevicePrimaryCtxRetain)(&context, 0);
    if (result == CUDA_SUCCESS) result = REAL(cuCtxSetCurrent)(context);
    if (result == CUDA_SUCCESS) context_calls_ended(contexts_retained(context, 0));
    return result;
}

int main(void) {
    uint64_t address = 0, number = 0;
    struct allocated found;
    CUipcMemHandle handle;
    pthread_t looking;
    int result = open_device();
    if (result != CUDA_SUCCESS || !backing_allocate(&address, 300, "cuMemAlloc_v2", &result) ||
        result != CUDA_SUCCESS || !ipc_get(&handle, address, "cuIpcGetMemHandle", &result) ||
        result != CUDA_SUCCESS || !blocks_find(address, &found))
        return 1;
    if (pthread_create(&looking, NULL, look, NULL) != 0) return 1;
    while (!atomic_load(&has_read))
        usleep(1000);
    if (!exports_find(found.block_address, &number)) return 2;
    atomic_store(&is_given, true);
    pthread_join(looking, NULL);
    printf("%d\n", exports_find(found.block_address, &number));
    return 0;
}
