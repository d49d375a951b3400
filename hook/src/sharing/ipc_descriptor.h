/* A descriptor that the hook keeps, and knows again: a program may close any number at any time
 * and use it for something of its own. */
#ifndef GPUSHARE_IPC_DESCRIPTOR_H
#define GPUSHARE_IPC_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct ipc_descriptor {
    int fd;
    uint64_t device, inode;
};

/* Moves it up, out of the way of programs, closed on exec; closed here where that fails. */
bool ipc_descriptor_adopt(struct ipc_descriptor *descriptor, int fd);
bool ipc_descriptor_is_ours(const struct ipc_descriptor *descriptor);
/* Closes it, unless its number is somebody else's by now. */
void ipc_descriptor_close(struct ipc_descriptor *descriptor);

#pragma GCC visibility pop
#endif
