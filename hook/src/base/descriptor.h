/* A descriptor that the hook keeps, and knows again: a program may close any number at any time
 * and use it for something of its own. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DESCRIPTOR_MIN 400 /* above what programs expect to find, and close, one by one */

struct descriptor {
    _Atomic int fd; /* -1: none */
    _Atomic uint64_t device, inode;
};

/* Moves it up, out of the way of programs, closed on exec; closed here where that fails. False too
 * where the program has taken the number over meanwhile: then its file is left alone. What is not
 * of this kind (S_IFSOCK, or 0: any) is not what was made. */
bool descriptor_adopt(struct descriptor *descriptor, int fd, uint32_t kind);
bool descriptor_is_ours(const struct descriptor *descriptor);
/* The user at the other end of a unix socket; UINT32_MAX, which nobody has: it is none. */
uint32_t descriptor_peer_uid(int socket);
/* Closes it, unless its number is somebody else's by now. */
void descriptor_close(struct descriptor *descriptor);
