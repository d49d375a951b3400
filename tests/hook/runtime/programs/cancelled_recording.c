/* A thread that is cancelled (`cancel`), or whose handler of SIGINT jumps out (`jump`), while the
 * hook records behind its launch. Then the stream goes that it has launched in. `beside`: a stream
 * of another context goes meanwhile. `waits`: another thread waits at the gate when the handler
 * jumps. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

#include "gpu.h"

static struct gpu gpu;
static CUstream stream;
static sigjmp_buf before;

static void jump(int number) {
    siglongjmp(before, number);
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    for (;;) {
        check(gpu_spin(&gpu, stream, 1000), "launch");
        pthread_testcancel();
    }
    return nothing;
}

static CUstream stream_of_another_context(void) {
    CUcontext context;
    CUstream made;
    check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
    check(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    return made;
}

static void run_and_cancel(CUstream elsewhere) {
    pthread_t launcher;
    if (pthread_create(&launcher, NULL, launch, NULL) != 0) exit(4);
    while (getchar() != '\n')
        continue;
    if (elsewhere == NULL)
        pthread_cancel(launcher);
    else
        check(cuStreamDestroy(elsewhere), "cuStreamDestroy");
    puts("told");
    fflush(stdout);
    pthread_cancel(launcher);
    pthread_join(launcher, NULL);
}

static void *wait_at_the_gate(void *nothing) {
    CUstream own;
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    check(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    while (getchar() != '\n')
        continue;
    puts("told");
    fflush(stdout);
    gpu_spin(&gpu, own, 1000); /* the signal ends its wait */
    return nothing;
}

static void jump_beside_a_waiter(void) {
    pthread_t waiter;
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
    if (pthread_create(&waiter, NULL, wait_at_the_gate, NULL) != 0) exit(4);
    pthread_sigmask(SIG_UNBLOCK, &interrupt, NULL);
    signal(SIGINT, jump);
    if (sigsetjmp(before, 1) == 0) launch(NULL);
    puts("jumped");
    fflush(stdout);
    pthread_join(waiter, NULL);
    check(gpu_spin(&gpu, stream, 1000), "launch");
}

int main(int count, char **arguments) {
    gpu = gpu_open(0);
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    if (count != 2) return 2;
    if (strcmp(arguments[1], "jump") == 0) {
        signal(SIGINT, jump);
        if (sigsetjmp(before, 1) == 0) launch(NULL);
    } else if (strcmp(arguments[1], "waits") == 0) {
        jump_beside_a_waiter();
    } else {
        run_and_cancel(strcmp(arguments[1], "beside") == 0 ? stream_of_another_context() : NULL);
    }
    check(cuStreamDestroy(stream), "cuStreamDestroy");
    puts("right");
    return 0;
}
