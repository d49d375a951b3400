#include "agent/wakeup.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/link.h"

struct end {
    _Atomic int fd;
    _Atomic uint64_t device, inode;
};

static struct end ours = {.fd = -1};   /* the agent waits at it */
static struct end theirs = {.fd = -1}; /* other threads send to it */

static bool is_ours(struct end *end) {
    uint64_t device, inode;
    return link_identify(end->fd, &device, &inode) && device == end->device && inode == end->inode;
}

static bool adopt(struct end *end, int fd) {
    uint64_t device, inode;
    fd = link_move_high(fd);
    if (!link_identify(fd, &device, &inode)) return false;
    end->device = device;
    end->inode = inode;
    end->fd = fd;
    return true;
}

bool wakeup_open(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return false;
    return adopt(&ours, pair[0]) && adopt(&theirs, pair[1]);
}

int wakeup_fd(void) {
    return ours.fd;
}

bool wakeup_clear(void) {
    char bytes[64];
    while (is_ours(&ours)) {
        ssize_t got = recv(ours.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        return got < 0 && is_ours(&theirs);
    }
    return false;
}

void wakeup_send(void) {
    int saved_errno = errno;
    if (is_ours(&theirs)) send(theirs.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    errno = saved_errno;
}

void wakeup_close(void) {
    if (is_ours(&ours)) close(ours.fd);
    if (is_ours(&theirs)) close(theirs.fd);
    ours.fd = theirs.fd = -1;
}
