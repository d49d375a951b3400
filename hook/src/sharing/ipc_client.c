#include "sharing/ipc_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"

#define PATIENCE_S 10

/* Waits for a place in the exporter's queue where that is full. Whoever else has bound the name is
 * not told the token. */
static bool connect_to(int fd, uint64_t server, uint64_t until_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = ipc_server_name(server, address.sun_path + 1);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    while (connect(fd, (const struct sockaddr *)&address, bytes) != 0)
        if (errno != EINTR || clock_now_ns() > until_ns) return false;
    return descriptor_peer_uid(fd) == geteuid();
}

enum ipc_client_answer ipc_client_ask(struct ipc_client *client, const struct ipc_handle *handle) {
    *client = (struct ipc_client){
        .socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
        .until_ns = clock_now_ns() + PATIENCE_S * 1000000000ull,
    };
    if (client->socket < 0) return IPC_CLIENT_NO_ROOM;
    const struct ipc_request request = ipc_request_of(handle);
    if (!connect_to(client->socket, handle->server, client->until_ns) ||
        send(client->socket, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof request)
        return IPC_CLIENT_GONE;
    return IPC_CLIENT_HERE;
}

static bool wait_for_packet(const struct ipc_client *client) {
    for (;;) {
        const uint64_t now_ns = clock_now_ns();
        if (now_ns >= client->until_ns) return false;
        struct pollfd readable = {.fd = client->socket, .events = POLLIN};
        const int ready = poll(&readable, 1, (int)((client->until_ns - now_ns) / 1000000) + 1);
        if (ready == 1) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

/* Copies the descriptors out; closes those that there is no place for. */
static size_t take_descriptors(struct msghdr *message, int descriptors[IPC_BATCH_MAX]) {
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (count < IPC_BATCH_MAX)
                descriptors[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

static enum ipc_client_answer refusal(const struct ipc_batch *batch, ssize_t bytes, int flags) {
    if (flags & MSG_CTRUNC) return IPC_CLIENT_NO_ROOM;
    const bool has_status = bytes >= (ssize_t)offsetof(struct ipc_batch, piece_bytes);
    return has_status && batch->status == IPC_UNKNOWN ? IPC_CLIENT_NO_BLOCK : IPC_CLIENT_GONE;
}

enum ipc_client_answer ipc_client_next(struct ipc_client *client, const struct ipc_handle *handle,
                                       struct ipc_batch *batch, int descriptors[IPC_BATCH_MAX]) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(IPC_BATCH_MAX * sizeof(int))];
    } control;
    struct iovec bytes = {batch, sizeof *batch};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (!wait_for_packet(client)) return IPC_CLIENT_GONE;
    const ssize_t received = recvmsg(client->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received <= 0) return IPC_CLIENT_GONE;
    const size_t count = take_descriptors(&message, descriptors);
    if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0 &&
        ipc_batch_check(batch, (size_t)received, count, handle, &client->progress))
        return IPC_CLIENT_HERE;
    for (size_t i = 0; i < count; i++)
        close(descriptors[i]);
    return refusal(batch, received, message.msg_flags);
}

bool ipc_client_is_done(const struct ipc_client *client) {
    return client->progress.pieces > 0 && client->progress.pieces_heard == client->progress.pieces;
}

void ipc_client_end(struct ipc_client *client) {
    if (client->socket >= 0) close(client->socket);
    client->socket = -1;
}
