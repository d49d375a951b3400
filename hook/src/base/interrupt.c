#include "base/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/hold.h"
#include "base/wait.h"

static uint32_t watchers; /* guarded by LOCK_INTERRUPT */
static _Thread_local bool watching __attribute__((tls_model("initial-exec")));
static bool installed; /* guarded by LOCK_INTERRUPT */
/* Written before ours is installed, and as it runs if only once. */
static struct sigaction previous;

/* A handler that was set while ours was installed may hand the signal back to ours, which then
 * means what the process wanted before that one. Without this the two would call each other for
 * ever. */
#define REPLACED_MAX 8
static struct sigaction replaced[REPLACED_MAX]; /* the latest last */
static uint32_t replaced_count;

/* The frame of our handler while it passes a signal on, and how often the signal was handed back to
 * it before. A signal that is handed back comes deeper in the stack, and not from the kernel, or
 * the process has raised it. Any other is a new one: it interrupts the handler before, or that one
 * has left ours by a jump. */
static _Thread_local struct passing {
    const char *frame;
    uint32_t times_back;
} passing __attribute__((tls_model("initial-exec")));

/* Does with the signal what the process would have done without us. Async-signal-safe. */
static void pass_on(const struct sigaction *wanted, int number, siginfo_t *info,
                    void *machine_context) {
    if (wanted->sa_handler == SIG_DFL) { /* whatever the flags say */
        sigaction(number, wanted, NULL);
        raise(number); /* blocked until this handler returns, then it ends the process */
    } else if (wanted->sa_flags & SA_SIGINFO)
        wanted->sa_sigaction(number, info, machine_context);
    else
        wanted->sa_handler(number);
}

/* Where a handler has raised the signal, it comes when ours has returned: below this. */
#define RAISED ((const char *)UINTPTR_MAX)

static bool is_pending(int number) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

static bool is_from_here(const siginfo_t *info) {
    return (info->si_code == SI_TKILL || info->si_code == SI_USER) && info->si_pid == getpid();
}

/* Then it is the one that hands the signal back. */
static bool is_in_place(const struct sigaction *wanted) {
    struct sigaction current;
    return sigaction(SIGINT, NULL, &current) == 0 && current.sa_handler == wanted->sa_handler;
}

static void on_interrupt(int number, siginfo_t *info, void *machine_context) {
    int saved_errno = errno;
    const char *frame = __builtin_frame_address(0);
    /* The kernel puts what it tells about a signal right above the frame of the handler that it
     * calls: the context on x86-64, the siginfo on Arm. */
    const void *above = __builtin_dwarf_cfa();
    const bool is_new = machine_context == above || info == above;
    /* Where the process ends by it, no lock and no call needs to be over first. */
    if (previous.sa_handler != SIG_DFL && locks_put_off(number)) return;
    const bool is_within = frame < passing.frame;
    const bool is_raised = is_new && is_within && replaced_count > 0 && is_from_here(info);
    const bool is_back = is_raised || (!is_new && (is_within || is_in_place(&previous)));
    const uint32_t times_back = is_back ? passing.times_back + 1 : 0;
    const struct passing outer =
        is_within && passing.frame != RAISED ? passing : (struct passing){0};
    passing = (struct passing){frame, times_back};
    struct sigaction wanted = previous;
    if (times_back == 0 && (wanted.sa_flags & SA_RESETHAND)) previous.sa_handler = SIG_DFL;
    wait_interrupted(); /* who waited may put `previous` back from here on */
    wait_let_go();
    if (times_back == 0)
        pass_on(&wanted, number, info, machine_context);
    else if (times_back <= replaced_count)
        pass_on(&replaced[replaced_count - times_back], number, info, machine_context);
    passing = is_pending(number) ? (struct passing){RAISED, times_back} : outer;
    errno = saved_errno;
}

static bool is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_interrupt;
}

/* It may know ours from before, where it has looked during a wait. */
static void note_replaced(const struct sigaction *by) {
    if (by->sa_handler == previous.sa_handler || previous.sa_handler == SIG_DFL) return;
    if (replaced_count == REPLACED_MAX)
        memmove(replaced, replaced + 1, --replaced_count * sizeof replaced[0]);
    replaced[replaced_count++] = previous;
}

/* While the dispositions change, a handler that jumps would leave the lock taken. */
static sigset_t block_interrupt(void) {
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    return before;
}

static void unblock_interrupt(const sigset_t *before) {
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

#define INTERRUPT_BLOCKED() \
    __attribute__((cleanup(unblock_interrupt))) const sigset_t mask_was = block_interrupt()

void interrupt_watch(void) {
    INTERRUPT_BLOCKED();
    HOLD(LOCK_INTERRUPT);
    struct sigaction current;
    watchers += !watching; /* a thread may have left its last wait by a jump */
    watching = true;
    /* Each that begins to wait looks: the program may have replaced ours since the first did. */
    if (sigaction(SIGINT, NULL, &current) == 0 && !is_ours(&current) &&
        current.sa_handler != SIG_IGN) {
        note_replaced(&current);
        previous = current;
        struct sigaction ours = current;
        /* A handler that wants to run once only must not take ours away with it. */
        ours.sa_flags = (int)(((unsigned)current.sa_flags | SA_SIGINFO) & ~(unsigned)SA_RESETHAND);
        ours.sa_sigaction = on_interrupt;
        installed = sigaction(SIGINT, &ours, NULL) == 0;
    }
}

/* Puts the process's disposition back, unless somebody has replaced ours meanwhile. */
static void restore(void) {
    struct sigaction current;
    if (installed && sigaction(SIGINT, NULL, &current) == 0 && is_ours(&current))
        sigaction(SIGINT, &previous, NULL);
    installed = false;
}

void interrupt_unwatch(void) {
    INTERRUPT_BLOCKED();
    HOLD(LOCK_INTERRUPT);
    /* A wait within this one counts once, and has ended. */
    if (watching && --watchers == 0) restore();
    watching = false;
}

void interrupt_after_fork(void) {
    restore();
    watchers = 0;
    watching = false;
}
