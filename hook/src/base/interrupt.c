#include "base/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/hold.h"
#include "base/wait.h"

static uint32_t watchers; /* guarded by LOCK_INTERRUPT */
static _Thread_local bool watching __attribute__((tls_model("initial-exec")));

/* What we found, each with a handler of ours that passes the signal on to it. A handler of the
 * program's that was set while one of ours was installed may hand the signal back to that one as
 * long as the process lives, so a place keeps what it has. Written under LOCK_INTERRUPT, before its
 * handler is installed. */
#define PLACES 4
static struct sigaction found[PLACES];
static uint32_t places_used;
/* The places whose signal this thread passes on. */
static _Thread_local uint32_t within __attribute__((tls_model("initial-exec")));

static void on_interrupt(uint32_t place, bool is_new, int number, siginfo_t *info, void *context);

/* The kernel puts what it tells about a signal right above the frame of the handler that it calls:
 * the context on x86-64, the siginfo and then the context on Arm. Else a handler of the program's
 * hands it back. */
#define HANDLER(place)                                                                  \
    static void on_##place(int number, siginfo_t *info, void *context) {                \
        const void *above = __builtin_dwarf_cfa();                                      \
        const bool is_new = context == above || (info == above && context == info + 1); \
        on_interrupt(place, is_new, number, info, context);                             \
    }
HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)

static void (*const handlers[PLACES])(int, siginfo_t *, void *) = {on_0, on_1, on_2, on_3};

/* PLACES: it is none of ours. */
static uint32_t place_of_ours(const struct sigaction *action) {
    uint32_t place = 0;
    while (place < PLACES && action->sa_sigaction != handlers[place])
        place++;
    return place;
}

/* Does with the signal what the process would have done without us. Async-signal-safe. */
static void pass_on(const struct sigaction *wanted, int number, siginfo_t *info, void *context) {
    if (wanted->sa_handler == SIG_DFL) { /* whatever the flags say */
        sigaction(number, wanted, NULL);
        raise(number); /* blocked until this handler returns, then it ends the process */
    } else if (wanted->sa_flags & SA_SIGINFO)
        wanted->sa_sigaction(number, info, context);
    else
        wanted->sa_handler(number);
}

static void on_interrupt(uint32_t place, bool is_new, int number, siginfo_t *info, void *context) {
    int saved_errno = errno;
    const struct sigaction wanted = found[place];
    const uint32_t outer = within;
    struct sigaction current;
    sigaction(number, NULL, &current);
    const bool is_wanted = current.sa_handler == wanted.sa_handler;
    /* A handler that hands on by a jump leaves the kernel's frame, but is installed itself. */
    is_new = is_new && (is_wanted || current.sa_sigaction == handlers[place]);
    /* Where the process ends by it, no lock and no call needs to be over first. */
    if (is_new && wanted.sa_handler != SIG_DFL && locks_put_off(number)) return;
    if (is_new && (wanted.sa_flags & SA_RESETHAND)) signal(number, SIG_DFL);
    wait_interrupted();
    wait_let_go();
    within = (is_new ? 0 : outer) | 1u << place;
    /* Who hands the signal back has done what there is to do where it found nothing, or itself. */
    const bool passes =
        is_new || (wanted.sa_handler != SIG_DFL && !is_wanted && !(outer >> place & 1));
    if (passes) pass_on(&wanted, number, info, context);
    /* A jump may have left the mark of one that passes no more: it costs one signal. */
    within = passes ? outer : outer & ~(1u << place);
    errno = saved_errno;
}

/* Of the mask the kernel's part: the C library does not set the rest. */
static bool is_same(const struct sigaction *one, const struct sigaction *other) {
    return one->sa_handler == other->sa_handler &&
           (one->sa_handler == SIG_DFL || (one->sa_flags == other->sa_flags &&
                                           memcmp(&one->sa_mask, &other->sa_mask, _NSIG / 8) == 0));
}

/* PLACES: all are taken. */
static uint32_t place_for(const struct sigaction *action) {
    uint32_t place = 0;
    while (place < places_used && !is_same(&found[place], action))
        place++;
    if (place == places_used && places_used < PLACES) found[places_used++] = *action;
    return place;
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
    if (sigaction(SIGINT, NULL, &current) != 0 || place_of_ours(&current) < PLACES ||
        current.sa_handler == SIG_IGN)
        return;
    if (current.sa_handler == SIG_DFL) current.sa_flags = 0; /* which the C library adds to */
    const uint32_t place = place_for(&current);
    if (place == PLACES) return; /* only the scheduler's word ends this wait */
    struct sigaction ours = current;
    ours.sa_sigaction = handlers[place];
    /* One that wants to run once only is taken away when it runs. */
    ours.sa_flags = (int)(((unsigned)current.sa_flags | SA_SIGINFO) & ~(unsigned)SA_RESETHAND);
    sigaction(SIGINT, &ours, NULL);
}

/* Puts the process's disposition back, unless somebody has replaced ours meanwhile. */
static void restore(void) {
    struct sigaction current;
    if (sigaction(SIGINT, NULL, &current) == 0 && place_of_ours(&current) < PLACES)
        sigaction(SIGINT, &found[place_of_ours(&current)], NULL);
}

void interrupt_unwatch(void) {
    INTERRUPT_BLOCKED(); /* a handler that jumps then leaves no wait */
    lock_take(LOCK_INTERRUPT);
    /* A wait within this one counts once, and has ended. */
    if (watching && --watchers == 0) restore();
    watching = false;
    lock_release(LOCK_INTERRUPT);
    wait_let_go();
}

void interrupt_after_fork(void) {
    restore();
    watchers = 0;
    watching = false;
}
