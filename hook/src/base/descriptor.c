#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/uncancelled.h"

struct identity {
    uint64_t device, inode;
    uint32_t kind;
};

static bool identify(int fd, struct identity *identity) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return false;
    *identity = (struct identity){(uint64_t)status.st_dev, (uint64_t)status.st_ino,
                                  status.st_mode & S_IFMT};
    return true;
}

static bool is(int fd, const struct identity *known) {
    struct identity now;
    return identify(fd, &now) && now.device == known->device && now.inode == known->inode;
}

/* The duplicate is ours in any case; what it is a duplicate of has to be looked at. */
static int move_up(int fd, const struct identity *identity) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
    if (high < 0) { /* a low limit of open files: it stays where it is */
        if (is(fd, identity) && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) return fd;
    } else if (!is(high, identity)) {
        close(high);
        high = -1;
    }
    if (is(fd, identity)) close(fd);
    return high;
}

bool descriptor_adopt(struct descriptor *descriptor, int fd, uint32_t kind) {
    UNCANCELLED();
    struct identity identity;
    descriptor->fd = -1;
    if (!identify(fd, &identity) || (kind != 0 && kind != identity.kind)) return false;
    fd = move_up(fd, &identity);
    descriptor->device = identity.device;
    descriptor->inode = identity.inode;
    descriptor->fd = fd;
    return fd >= 0;
}

bool descriptor_is_ours(const struct descriptor *descriptor) {
    const struct identity identity = {descriptor->device, descriptor->inode, 0};
    return is(descriptor->fd, &identity);
}

uint32_t descriptor_peer_uid(int socket) {
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    return known ? peer.uid : UINT32_MAX;
}

void descriptor_close(struct descriptor *descriptor) {
    UNCANCELLED();
    if (descriptor_is_ours(descriptor)) close(descriptor->fd);
    descriptor->fd = -1;
}
