/* Handlers of SIGINT that come and go while calls wait at the gate, and between. Each line of input
 * is a step:
 *   first, second, third   sets this handler; the last two hand the signal to what they found
 *   default                nobody handles it
 *   put back               what `second` found is there again
 *   again                  `second` is set once more, and forgets what it finds now
 *   with care              the same, and it keeps what it finds now where that is not itself
 *   once                   one that puts back what it found, and calls that
 *   jumps                  a handler that jumps out of `deep`
 *   wait                   another thread launches
 *   deep                   this one does, some frames below
 *   send                   the process sends itself the signal, soon
 *   at 3                   the signal comes with the third call of sigaction from now on */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

static struct gpu gpu;
static struct sigaction found_by_second, found_by_third;
static sigjmp_buf before;
static int calls_left;

int sigaction(int number, const struct sigaction *wanted, struct sigaction *was) {
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (real == NULL)
        real = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT,
                                                                                 "sigaction");
    const int result = real(number, wanted, was);
    if (number == SIGINT && calls_left > 0 && --calls_left == 0) raise(SIGINT);
    return result;
}

static void say(const char *line) {
    if (write(STDOUT_FILENO, line, strlen(line)) < 0) _exit(7);
}

static void hand_on(const struct sigaction *found, int number, siginfo_t *info, void *context) {
    if (found->sa_flags & SA_SIGINFO)
        found->sa_sigaction(number, info, context);
    else if (found->sa_handler != SIG_DFL)
        found->sa_handler(number);
}

static void first(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    say("first\n");
}

static void second(int number, siginfo_t *info, void *context) {
    say("second\n");
    hand_on(&found_by_second, number, info, context);
}

static void third(int number, siginfo_t *info, void *context) {
    say("third\n");
    hand_on(&found_by_third, number, info, context);
}

static void once(int number, siginfo_t *info, void *context) {
    say("once\n");
    sigaction(SIGINT, &found_by_third, NULL);
    hand_on(&found_by_third, number, info, context);
    say("it ends\n"); /* not by a jump to the other one */
}

static volatile sig_atomic_t may_jump;

static void jumps(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    if (may_jump) siglongjmp(before, number);
    say("first\n");
}

static void set(void (*handler)(int, siginfo_t *, void *), struct sigaction *found) {
    static int others; /* no two dispositions are the same */
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART, .sa_sigaction = handler};
    sigaddset(&action.sa_mask, SIGRTMIN + others++ % 20);
    sigaction(SIGINT, &action, found);
}

static void launch(void) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    printf("launch %d\n", (int)gpu_spin(&gpu, NULL, 1000));
    fflush(stdout);
}

static void *wait_at_the_gate(void *nothing) {
    launch();
    return nothing;
}

static void *send_soon(void *nothing) {
    usleep(100000);
    kill(getpid(), SIGINT);
    return nothing;
}

/* The signal is for the main thread. */
static void begin(void *(*thread)(void *)) {
    pthread_t begun;
    sigset_t interrupts;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupts, NULL);
    if (pthread_create(&begun, NULL, thread, NULL) != 0) exit(4);
    pthread_detach(begun);
    pthread_sigmask(SIG_UNBLOCK, &interrupts, NULL);
}

static __attribute__((noinline)) void deep(int frames) {
    volatile char used[4096];
    used[0] = 0;
    (void)used[0];
    if (frames > 0)
        deep(frames - 1);
    else if (sigsetjmp(before, 1) == 0) {
        may_jump = 1;
        launch();
    } else
        say("jumped\n");
    may_jump = 0;
}

static void take(const char *step) {
    static int frames;
    struct sigaction unheeded;
    if (strcmp(step, "first") == 0) set(first, &unheeded);
    if (strcmp(step, "second") == 0) set(second, &found_by_second);
    if (strcmp(step, "third") == 0) set(third, &found_by_third);
    if (strcmp(step, "once") == 0) set(once, &found_by_third);
    if (strcmp(step, "again") == 0) set(second, &unheeded);
    if (strcmp(step, "with care") == 0) {
        set(second, &unheeded);
        if (unheeded.sa_sigaction != second) found_by_second = unheeded;
    }
    if (strcmp(step, "jumps") == 0) set(jumps, &unheeded);
    if (strcmp(step, "default") == 0) signal(SIGINT, SIG_DFL);
    if (strcmp(step, "put back") == 0) sigaction(SIGINT, &found_by_second, NULL);
    if (strcmp(step, "wait") == 0) begin(wait_at_the_gate);
    if (strcmp(step, "send") == 0) begin(send_soon);
    if (strcmp(step, "deep") == 0) deep(frames++);
    if (strncmp(step, "at ", 3) == 0) calls_left = atoi(step + 3);
}

int main(void) {
    char line[64];
    gpu = gpu_open(0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        take(line);
        printf("ok %s\n", line);
        fflush(stdout);
    }
    return 0;
}
