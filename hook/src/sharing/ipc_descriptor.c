#include "sharing/ipc_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/link.h"

static bool identify(int fd, uint64_t *device, uint64_t *inode) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return false;
    *device = (uint64_t)status.st_dev;
    *inode = (uint64_t)status.st_ino;
    return true;
}

bool ipc_descriptor_adopt(struct ipc_descriptor *descriptor, int fd) {
    fd = link_move_high(fd);
    *descriptor = (struct ipc_descriptor){.fd = fd};
    if (identify(fd, &descriptor->device, &descriptor->inode) &&
        fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
        return true;
    if (fd >= 0) close(fd);
    descriptor->fd = -1;
    return false;
}

bool ipc_descriptor_is_ours(const struct ipc_descriptor *descriptor) {
    uint64_t device, inode;
    return identify(descriptor->fd, &device, &inode) && device == descriptor->device &&
           inode == descriptor->inode;
}

void ipc_descriptor_close(struct ipc_descriptor *descriptor) {
    if (ipc_descriptor_is_ours(descriptor)) close(descriptor->fd);
    descriptor->fd = -1;
}
