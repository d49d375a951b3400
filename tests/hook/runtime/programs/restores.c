/* A handler for SIGINT that is set while a call waits, behind which a further thread waits. It
 * passes the signal on to the one that it found: it puts that one back and raises the signal, at
 * once or when it has returned. Or it hands it on when it is told to, while another one comes. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static struct sigaction found;
static const char *way;
static volatile sig_atomic_t firsts;

static void say(const char *line) {
    if (write(STDOUT_FILENO, line, strlen(line)) < 0) _exit(7);
}

static struct sigaction current(void) {
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    return action;
}

static void *launch(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    gpu_spin(&gpu, NULL, 1000);
    return nothing;
}

/* Returns when a further thread waits, for which the handler was replaced. */
static void wait_beside(void (*handler)(int, siginfo_t *, void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, launch, NULL);
    pthread_detach(thread);
    while (current().sa_sigaction == handler)
        usleep(1000);
}

static void first(int number) {
    (void)number;
    say("first\n");
    firsts++;
}

static void second(int number, siginfo_t *info, void *context) {
    char told;
    while (current().sa_sigaction != second) /* until the cancelled waits have ended */
        usleep(1000);
    if (strcmp(way, "hand on") == 0) {
        wait_beside(second);
        say("second\n");
        if (read(STDIN_FILENO, &told, 1) != 1) _exit(8);
        found.sa_sigaction(number, info, context);
        return;
    }
    say("second\n");
    sigaction(number, &found, NULL);
    if (strcmp(way, "at once") == 0) {
        sigset_t interrupts;
        sigemptyset(&interrupts);
        sigaddset(&interrupts, number);
        pthread_sigmask(SIG_UNBLOCK, &interrupts, NULL);
    }
    raise(number);
}

int main(int count, char **arguments) {
    sigset_t interrupts;
    if (count != 2) return 2;
    way = arguments[1];
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    signal(SIGINT, first);
    gpu = gpu_open(0);
    pthread_sigmask(SIG_BLOCK, &interrupts, NULL); /* the others leave it to this thread */
    wait_beside((void (*)(int, siginfo_t *, void *))(void *)first);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART, .sa_sigaction = second};
    if (strcmp(way, "hand on") == 0) action.sa_flags |= SA_NODEFER;
    sigaction(SIGINT, &action, &found);
    wait_beside(second);
    say("both wait\n");
    pthread_sigmask(SIG_UNBLOCK, &interrupts, NULL);
    while (firsts < (strcmp(way, "hand on") == 0 ? 2 : 1))
        usleep(1000);
    say("over\n");
    return 0;
}
