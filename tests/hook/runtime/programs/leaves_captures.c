/* A handler of SIGINT that jumps out of the begin and out of the end of a capture, at each place
 * there where the hook lets go of a lock. It says how often it did. Then it launches until its
 * input ends (`jumps`). `frees`: it had memory before, frees it, and allocates and frees more.
 * `launches`: it does that only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

#define KEPT_BYTES (64u << 20)
#define BYTES (1u << 20)
#define LOCKS_MAX 16

static sigjmp_buf before;
static _Thread_local int counted, jump_at;

static bool is_of_the_hook(const void *code) {
    Dl_info found;
    return dladdr(code, &found) != 0 && strstr(found.dli_fname, "libgpushare") != NULL;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    if (real == NULL) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    const int result = real(mutex);
    if (jump_at > 0 && is_of_the_hook(__builtin_return_address(0)) && ++counted == jump_at) {
        jump_at = 0;
        raise(SIGINT);
    }
    return result;
}

static void jump(int number) {
    siglongjmp(before, number);
}

static void begin(CUstream stream) {
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
}

static void end(CUstream stream) {
    CUgraph graph;
    check(cuStreamEndCapture(stream, &graph), "end");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
}

/* A jump out of this call at the lock of this number; false where it takes fewer. */
static bool is_left(void (*call)(CUstream), CUstream stream, int lock) {
    counted = 0;
    if (sigsetjmp(before, 1) != 0) return true;
    jump_at = lock;
    call(stream);
    jump_at = 0;
    return false;
}

static bool captures(CUstream stream) {
    CUstreamCaptureStatus status;
    check(cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    const bool jumps = strcmp(arguments[1], "launches") != 0;
    const bool frees = strcmp(arguments[1], "frees") == 0;
    struct gpu gpu = gpu_open(0);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    CUstream stream;
    CUdeviceptr kept = 0, memory;
    int left = 0;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(gpu_spin(&gpu, stream, 1000), "launch");
    if (frees) check(cuMemAlloc(&kept, KEPT_BYTES), "cuMemAlloc");
    signal(SIGINT, jump);
    /* The last one first: where a call takes fewer than the one before, none of its last is passed.
     */
    for (int lock = LOCKS_MAX; jumps && lock > 0; lock--) {
        left += is_left(begin, stream, lock);
        if (captures(stream)) end(stream);
    }
    for (int lock = LOCKS_MAX; jumps && lock > 0; lock--) {
        begin(stream);
        left += is_left(end, stream, lock);
        if (captures(stream)) end(stream);
    }
    if (frees) check(cuMemFree(kept), "cuMemFree");
    printf("left %d\n", left);
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        check(gpu_spin(&gpu, stream, 1000000), "launch");
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
        if (frees) check(cuMemAlloc(&memory, BYTES), "cuMemAlloc");
        if (frees) check(cuMemFree(memory), "cuMemFree");
        if (frees) usleep(5000);
    }
    return 0;
}
