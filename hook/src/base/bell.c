#include "base/bell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/uncancelled.h"

#define ACT_PATIENCE_NS 100000000
#define TAKEN_PAUSE_NS 10000000

typedef void (*start_function)(const char *cause);

static _Atomic(start_function) start_agent;
static _Atomic bool heard;     /* the start of the agent is over */
static _Atomic unsigned news;  /* what the agent has not looked at */
static _Atomic uint32_t asked; /* bell_ring_and_wait: how many asked, */
static _Atomic uint32_t acted; /* and up to which the agent has acted */

/* A pair of sockets, because a socket can be told from whatever a program puts in its place, and
 * send() refuses everything that is none. */
static struct descriptor ours = {.fd = -1};   /* the agent waits at it */
static struct descriptor theirs = {.fd = -1}; /* other threads send to it */

void bell_on_start(void (*start)(const char *cause)) {
    atomic_store_explicit(&start_agent, start, memory_order_release);
}

void bell_start_agent(const char *cause) {
    if (!bell_is_heard()) atomic_load_explicit(&start_agent, memory_order_acquire)(cause);
}

bool bell_is_heard(void) {
    return atomic_load_explicit(&heard, memory_order_acquire);
}

void bell_set_heard(void) {
    atomic_store_explicit(&heard, true, memory_order_release);
}

/* ---- wake-ups ---------------------------------------------------------------------------------
 */

bool bell_open(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return false;
    const bool first = descriptor_adopt(&ours, pair[0], S_IFSOCK);
    return descriptor_adopt(&theirs, pair[1], S_IFSOCK) && first;
}

static void shut_down(void) {
    descriptor_close(&ours);
    descriptor_close(&theirs);
}

int bell_fd(void) {
    return ours.fd;
}

/* False when the pair is no longer ours. When a program closes one end, the other wakes up. */
static bool take_wake_ups(void) {
    char bytes[64];
    while (descriptor_is_ours(&ours)) {
        ssize_t got = recv(ours.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        return got < 0 && descriptor_is_ours(&theirs);
    }
    return false;
}

/* A program that has closed our descriptors is about to put its own files in their places. What the
 * agent opens begins at the lowest free number, so the agent keeps out of the way until then. */
void bell_clear(void) {
    if (take_wake_ups()) return;
    shut_down();
    clock_sleep_ns(TAKEN_PAUSE_NS);
    bell_open();
}

static void wake_up(void) {
    UNCANCELLED();
    int saved_errno = errno;
    if (descriptor_is_ours(&theirs)) send(theirs.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    errno = saved_errno;
}

/* ---- news -------------------------------------------------------------------------------------
 */

void bell_ring(enum bell_news what) {
    if (atomic_fetch_or(&news, what) == 0) wake_up();
}

void bell_ring_and_wait(enum bell_news what) {
    bell_ring(what);
    uint32_t ticket = atomic_fetch_add(&asked, 1) + 1;
    wake_up();
    uint64_t until_ns = clock_now_ns() + ACT_PATIENCE_NS;
    struct timespec pause = {0, ACT_PATIENCE_NS};
    uint32_t seen;
    while ((int32_t)((seen = atomic_load(&acted)) - ticket) < 0 && clock_now_ns() < until_ns)
        syscall(SYS_futex, &acted, FUTEX_WAIT_PRIVATE, seen, &pause, NULL, 0);
}

unsigned bell_take_news(uint32_t *asked_before) {
    *asked_before = atomic_load(&asked);
    return atomic_exchange(&news, 0);
}

void bell_acted(uint32_t asked_before) {
    if (atomic_exchange(&acted, asked_before) == asked_before) return;
    syscall(SYS_futex, &acted, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void bell_after_fork(void) {
    shut_down();
    atomic_store(&news, 0);
    atomic_store(&asked, 0);
    atomic_store(&acted, 0);
    atomic_store(&heard, false);
}
