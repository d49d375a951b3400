/* A handler for SIGINT that is set while a call waits, and jumps out of the wait. Each line of
 * input is one more wait, deeper in the stack than the one before. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static sigjmp_buf before;

static void first(int number) {
    (void)number;
    if (write(STDOUT_FILENO, "first\n", 6) != 6) _exit(7);
}

static void jumps(int number) {
    siglongjmp(before, number);
}

static int handler_is(void (*handler)(int)) {
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    return action.sa_handler == handler;
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    gpu_spin(&gpu, NULL, 1000);
    return nothing;
}

static __attribute__((noinline)) int launch_below(int frames) {
    volatile char used[16384];
    used[0] = 0;
    const int result = frames > 0 ? launch_below(frames - 1) : (int)gpu_spin(&gpu, NULL, 1000);
    return result + used[0];
}

/* Sets the handler while one thread waits, and has another one wait. */
static void *replace(void *nothing) {
    pthread_t later;
    while (handler_is(first))
        usleep(1000);
    signal(SIGINT, jumps);
    pthread_create(&later, NULL, launch, NULL);
    while (handler_is(jumps))
        usleep(1000);
    printf("both wait\n");
    fflush(stdout);
    pthread_join(later, NULL);
    return nothing;
}

int main(void) {
    char line[8];
    volatile int waits = 0;
    pthread_t other;
    sigset_t interrupts;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    signal(SIGINT, first);
    gpu = gpu_open(0);
    pthread_sigmask(SIG_BLOCK, &interrupts, NULL); /* the others leave it to this thread */
    pthread_create(&other, NULL, replace, NULL);
    pthread_sigmask(SIG_UNBLOCK, &interrupts, NULL);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sigsetjmp(before, 1) == 0)
            printf("launch %d\n", launch_below(waits++));
        else
            printf("jumped\n");
        fflush(stdout);
    }
    pthread_join(other, NULL);
    return 0;
}
