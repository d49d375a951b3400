/* Asks an exporting process for the descriptors of a block of its device memory. */
#pragma once

#include "base/descriptor.h"
#include "sharing/ipc_handle.h"

enum ipc_client_answer {
    IPC_CLIENT_HERE,
    IPC_CLIENT_NO_BLOCK, /* the exporter lives, and has no such memory any more */
    IPC_CLIENT_GONE,     /* nobody of this user answers, or not in time */
    IPC_CLIENT_NO_ROOM,  /* too few descriptors are left in this process */
    IPC_CLIENT_CANCELLED,
};

struct ipc_client {
    int socket;
    uint64_t until_ns;
    struct ipc_progress progress;
};

/* Connects and asks. Each packet then comes with ipc_client_next; the caller closes its
 * descriptors, of which there are `batch->count`, when it is HERE. */
enum ipc_client_answer ipc_client_ask(struct ipc_client *client, const struct ipc_handle *handle);
enum ipc_client_answer ipc_client_next(struct ipc_client *client, const struct ipc_handle *handle,
                                       struct ipc_batch *batch, int descriptors[IPC_BATCH_MAX]);
bool ipc_client_is_done(const struct ipc_client *client);
/* The exporter is to know what becomes of the memory, by the connection that is kept for that: what
 * ends without a word has the memory as long as this process lives. */
void ipc_client_keep(struct ipc_client *client, struct descriptor *connection);
bool ipc_client_tell(const struct descriptor *connection, enum ipc_word word);
