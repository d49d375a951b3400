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
 * long as the process lives. So a place changes only where the process has had more dispositions
 * than there are places. Written under LOCK_INTERRUPT, before its handler is installed. */
#define PLACES 6
static struct sigaction found[PLACES];
static uint32_t places_used;

static void on_interrupt(uint32_t place, int number, siginfo_t *info, void *machine_context);

#define HANDLER(place)                                                                \
    static void handler_##place(int number, siginfo_t *info, void *machine_context) { \
        on_interrupt(place, number, info, machine_context);                           \
    }
HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)
HANDLER(4)
HANDLER(5)

static void (*const handlers[PLACES])(int, siginfo_t *, void *) = {handler_0, handler_1, handler_2,
                                                                   handler_3, handler_4, handler_5};

/* PLACES: it is none of ours. */
static uint32_t place_of_ours(const struct sigaction *action) {
    uint32_t place = 0;
    while (place < PLACES && action->sa_sigaction != handlers[place])
        place++;
    return place;
}

/* Where ours is installed, the kernel has called it. Else a handler hands the signal back to it. */
static bool is_installed(uint32_t place) {
    struct sigaction current;
    return sigaction(SIGINT, NULL, &current) == 0 && place_of_ours(&current) == place;
}

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

static void on_interrupt(uint32_t place, int number, siginfo_t *info, void *machine_context) {
    int saved_errno = errno;
    const struct sigaction wanted = found[place];
    const bool is_first = is_installed(place);
    /* Where the process ends by it, no lock and no call needs to be over first. */
    if (is_first && wanted.sa_handler != SIG_DFL && locks_put_off(number)) return;
    if (is_first && (wanted.sa_flags & SA_RESETHAND)) {
        struct sigaction reset = wanted;
        reset.sa_handler = SIG_DFL;
        sigaction(number, &reset, NULL);
    }
    wait_interrupted();
    wait_let_go();
    pass_on(&wanted, number, info, machine_context);
    errno = saved_errno;
}

static bool is_same(const struct sigaction *one, const struct sigaction *other) {
    return one->sa_handler == other->sa_handler && one->sa_flags == other->sa_flags &&
           memcmp(&one->sa_mask, &other->sa_mask, sizeof one->sa_mask) == 0;
}

static uint32_t place_for(const struct sigaction *action) {
    for (uint32_t place = 0; place < places_used && place < PLACES; place++)
        if (is_same(&found[place], action)) return place;
    const uint32_t place = places_used++ % PLACES;
    found[place] = *action;
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
    struct sigaction ours = current;
    ours.sa_sigaction = handlers[place_for(&current)];
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
