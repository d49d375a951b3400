/* One launch that waits at the gate while SIGINT comes. The argument says what the program itself
 * wants to do with the signal: handler, default, ignore, replace (a handler set meanwhile), or jump
 * (out of the wait, never to come back to it), or once (SA_RESETHAND). Told to, it keeps the thread
 * that waits from running, and sets a handler that calls the one which it found when it looked. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;

static void handled(int number) {
    (void)number;
    if (write(STDOUT_FILENO, "handled\n", 8) != 8) _exit(7);
}

static void replaced(int number) {
    (void)number;
}

static struct sigaction found;

static void chains(int number) {
    static int deep;
    if (write(STDOUT_FILENO, "chained\n", 8) != 8 || ++deep > 3) _exit(7);
    if (found.sa_flags & SA_SIGINFO)
        found.sa_sigaction(number, NULL, NULL);
    else
        found.sa_handler(number);
}

static sem_t goes_on;

/* The thread stays inside its wait, whatever ends that meanwhile. */
static void pauses(int number) {
    (void)number;
    if (write(STDOUT_FILENO, "paused\n", 7) != 7) _exit(7);
    while (sem_wait(&goes_on) != 0)
        continue;
}

static sigjmp_buf before_launch;

static void jumps(int number) {
    siglongjmp(before_launch, number);
}

static const char *disposition(void) {
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    if (action.sa_handler == replaced) return "replaced";
    return action.sa_handler == handled || action.sa_handler == jumps ||
                   action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN
               ? "own"
               : "foreign";
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    if (sigsetjmp(before_launch, 1) != 0) {
        printf("jumped\n");
        fflush(stdout);
        return nothing;
    }
    int result = (int)gpu_spin(&gpu, NULL, 1000);
    printf("launch %d\n", result);
    printf("disposition %s\n", disposition());
    fflush(stdout);
    return nothing;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    const char *wanted = arguments[1];
    if (strcmp(wanted, "handler") == 0 || strcmp(wanted, "replace") == 0) signal(SIGINT, handled);
    if (strcmp(wanted, "ignore") == 0) signal(SIGINT, SIG_IGN);
    if (strcmp(wanted, "jump") == 0) signal(SIGINT, jumps);
    const struct sigaction once = {.sa_handler = handled,
                                   .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    if (strcmp(wanted, "once") == 0) sigaction(SIGINT, &once, NULL);
    sem_init(&goes_on, 0, 0);
    signal(SIGUSR1, pauses);
    gpu = gpu_open(0);
    pthread_t thread;
    pthread_create(&thread, NULL, launch, NULL);
    sigset_t interrupts; /* for the thread that waits to handle */
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    if (strcmp(wanted, "jump") == 0) pthread_sigmask(SIG_BLOCK, &interrupts, NULL);
    while (strcmp(wanted, "ignore") != 0 && strcmp(disposition(), "foreign") != 0)
        usleep(1000);
    printf("waits\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "again\n") == 0) launch(NULL);
        if (strcmp(line, "pause\n") == 0) pthread_kill(thread, SIGUSR1);
        if (strcmp(line, "go on\n") == 0) sem_post(&goes_on);
        if (strcmp(line, "look\n") == 0) sigaction(SIGINT, NULL, &found);
        if (strcmp(line, "chain\n") == 0) signal(SIGINT, chains);
        if (strcmp(line, "replace\n") != 0) continue;
        signal(SIGINT, replaced);
        printf("replaced\n");
        fflush(stdout);
    }
    pthread_join(thread, NULL);
    return 0;
}
