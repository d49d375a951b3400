/* Handlers for SIGINT that are set while calls wait, and hand the signal on to the one that they
 * found; behind each of them a further thread waits as well. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static struct sigaction found_by_second, found_by_third;

static void say(const char *line, size_t bytes) {
    if (write(STDOUT_FILENO, line, bytes) != (ssize_t)bytes) _exit(7);
}

static void first(int number) {
    (void)number;
    say("first\n", 6);
}

static void hand_on(const struct sigaction *found, int number, siginfo_t *info, void *context) {
    if (found->sa_flags & SA_SIGINFO)
        found->sa_sigaction(number, info, context);
    else
        found->sa_handler(number);
}

static void second(int number, siginfo_t *info, void *context) {
    say("second\n", 7);
    hand_on(&found_by_second, number, info, context);
}

static void third(int number, siginfo_t *info, void *context) {
    say("third\n", 6);
    hand_on(&found_by_third, number, info, context);
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    printf("launch %d\n", (int)gpu_spin(&gpu, NULL, 1000));
    fflush(stdout);
    return nothing;
}

static struct sigaction current(void) {
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    return action;
}

/* Sets the handler, and returns when a further thread waits. */
static void set(void (*handler)(int, siginfo_t *, void *), struct sigaction *found,
                pthread_t *thread) {
    struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = handler};
    sigaction(SIGINT, &action, found);
    pthread_create(thread, NULL, launch, NULL);
    while (current().sa_sigaction == handler)
        usleep(1000);
}

int main(void) {
    pthread_t threads[3];
    signal(SIGINT, first);
    gpu = gpu_open(0);
    pthread_create(&threads[0], NULL, launch, NULL);
    while (current().sa_handler == first)
        usleep(1000);
    set(second, &found_by_second, &threads[1]);
    set(third, &found_by_third, &threads[2]);
    printf("all wait\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
