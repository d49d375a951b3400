/* Ends in the way that its argument names while a thread of it waits for its turn. A handler of
 * exit that runs after the hook's own waits until that thread has its answer, and launches, too. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static CUdeviceptr held, sum;
static uint64_t words;
static pthread_t waits;

static CUresult launch(void) {
    void *arguments[] = {&sum, &held, &words};
    return cuLaunchKernel(gpu.checksum, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static void *launch_in_thread(void *nothing) {
    cuCtxSetCurrent(gpu.context);
    printf("waits\n");
    fflush(stdout);
    const CUresult result = launch();
    printf("thread %d\n", (int)result);
    fflush(stdout);
    return nothing;
}

static void at_exit(void) {
    pthread_join(waits, NULL);
    printf("handler %d\n", (int)launch());
    fflush(stdout);
}

static void *exit_in_thread(void *nothing) {
    cuCtxSetCurrent(gpu.context);
    exit(0);
    return nothing;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    const char *way = arguments[2];
    char *const again[] = {"true", NULL};
    pthread_t thread;
    atexit(at_exit); /* before the hook's own handler, so it runs after that */
    gpu = gpu_open(0);
    words = strtoull(arguments[1], NULL, 10) / 4;
    check(cuMemAlloc(&held, 4 * words), "cuMemAlloc");
    check(cuMemAlloc(&sum, 8), "cuMemAlloc");
    check(launch(), "launch");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("holds\n");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) != NULL)
        pthread_create(&waits, NULL, launch_in_thread, NULL);
    while (getchar() != EOF)
        continue;
    if (strcmp(way, "return") == 0) return 0;
    if (strcmp(way, "exit") == 0) exit(0);
    if (strcmp(way, "_exit") == 0) _exit(0);
    if (strcmp(way, "quick_exit") == 0) quick_exit(0);
    if (strcmp(way, "exec") == 0) execvp("true", again);
    if (strcmp(way, "kill") == 0) raise(SIGKILL);
    pthread_create(&thread, NULL, exit_in_thread, NULL);
    pthread_exit(NULL);
}
