/* SIGINT comes while a process forks and the hook holds its locks. Another thread waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static volatile sig_atomic_t interrupts;
static _Thread_local volatile sig_atomic_t is_forking; /* other threads lock meanwhile */

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    if (real == NULL) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (is_forking) {
        is_forking = 0;
        raise(SIGINT);
    }
    return real(mutex);
}

static void count(int number) {
    interrupts += number == SIGINT;
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    gpu_spin(&gpu, NULL, 1000);
    return nothing;
}

int main(void) {
    pthread_t thread;
    struct sigaction action;
    CUdeviceptr memory;
    signal(SIGINT, count);
    gpu = gpu_open(0);
    pthread_create(&thread, NULL, launch, NULL);
    do {
        usleep(1000);
        sigaction(SIGINT, NULL, &action);
    } while (action.sa_handler == count);
    is_forking = 1;
    const pid_t child = fork();
    if (child == 0) cuMemAlloc(&memory, 1 << 20); /* takes locks; it fails in a child */
    printf("%s %d\n", child == 0 ? "child" : "parent", (int)interrupts);
    fflush(stdout);
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    pthread_join(thread, NULL);
    while (getchar() != EOF)
        continue;
    return 0;
}
