/* A handler for SIGINT that is set while a call waits, and hands the signal on to the one that it
 * found; then a second thread waits as well. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static struct sigaction found;

static void say(const char *line, size_t bytes) {
    if (write(STDOUT_FILENO, line, bytes) != (ssize_t)bytes) _exit(7);
}

static void first(int number) {
    (void)number;
    say("first\n", 6);
}

static void second(int number, siginfo_t *info, void *machine_context) {
    say("second\n", 7);
    if (found.sa_flags & SA_SIGINFO)
        found.sa_sigaction(number, info, machine_context);
    else
        found.sa_handler(number);
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    printf("launch %d\n", (int)gpu_spin(&gpu, NULL, 1000));
    fflush(stdout);
    return nothing;
}

static int handler_is(void (*handler)(int)) {
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    return action.sa_handler == handler;
}

int main(void) {
    pthread_t threads[2];
    signal(SIGINT, first);
    gpu = gpu_open(0);
    pthread_create(&threads[0], NULL, launch, NULL);
    while (handler_is(first))
        usleep(1000);
    struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = second};
    sigaction(SIGINT, &action, &found);
    pthread_create(&threads[1], NULL, launch, NULL);
    while ((sigaction(SIGINT, NULL, &action), action.sa_sigaction == second))
        usleep(1000);
    printf("both wait\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
