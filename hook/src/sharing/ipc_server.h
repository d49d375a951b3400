/* The thread that hands descriptors of exported memory to other processes of the same user. It is
 * started with the first export, and lives in a process that exports alone: none in children. */
#pragma once

#include "sharing/ipc_handle.h"

/* Starts it where it does not run, and fills in the server and token of a handle. False: no
 * descriptor or thread is to be had. */
bool ipc_server_start(struct ipc_handle *handle);
/* Whether a handle is of this process. */
bool ipc_server_is_here(uint64_t server);

void ipc_server_after_fork(void);
