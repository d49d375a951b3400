/* Two threads that want as much memory each. One waits for it; once told that it may go on, it
 * comes so late that the other has taken what it was told of: "go" lets the other one begin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu.h"

#define BYTES ((size_t)64 << 20)

static _Thread_local bool is_late;
static _Atomic bool may_go_on;

/* The hook's waiting threads sleep by it. */
long syscall(long number, ...) {
    va_list list;
    long arguments[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    static long (*real)(long, ...);
    if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    const long result = real(number, arguments[0], arguments[1], arguments[2], arguments[3],
                             arguments[4], arguments[5]);
    while (is_late && number == SYS_futex && !atomic_load(&may_go_on))
        usleep(1000);
    return result;
}

static void allocate(const struct gpu *gpu, const char *who) {
    CUdeviceptr address;
    check(cuCtxSetCurrent(gpu->context), "cuCtxSetCurrent");
    const CUresult result = cuMemAlloc(&address, BYTES);
    printf("%s %d\n", who, (int)result);
}

static void *come_late(void *gpu) {
    is_late = true;
    allocate(gpu, "late");
    return NULL;
}

int main(void) {
    char line[16];
    pthread_t thread;
    setlinebuf(stdout);
    struct gpu gpu = gpu_open(0);
    if (pthread_create(&thread, NULL, come_late, &gpu) != 0) return 1;
    if (fgets(line, sizeof line, stdin) == NULL) return 1;
    allocate(&gpu, "first");
    atomic_store(&may_go_on, true);
    pthread_join(thread, NULL);
    return 0;
}
