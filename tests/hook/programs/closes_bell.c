/* A program that closes the descriptors that wake up the agent: what the agent does, in order.
 * Linked with -Wl,--wrap=syscall,--wrap=socketpair. */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/descriptor.h"

int __real_socketpair(int domain, int type, int protocol, int pair[2]);

int __wrap_socketpair(int domain, int type, int protocol, int pair[2]) {
    printf("pair\n");
    return __real_socketpair(domain, type, protocol, pair);
}

long __wrap_syscall(long number, ...) {
    printf(number == SYS_nanosleep ? "pause\n" : "");
    return 0;
}

int main(void) {
    bell_open();
    bell_clear();
    printf("program closes\n");
    close_range(DESCRIPTOR_MIN, ~0u, 0);
    bell_clear();
    bell_ring(NEWS_NEEDS_CHANGED);
    struct pollfd rung = {.fd = bell_fd(), .events = POLLIN};
    printf("rings: %d\n", poll(&rung, 1, 0));
    return 0;
}
