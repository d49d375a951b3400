#include "sharing/ipc_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/wait.h"

#define PATIENCE_S 10
#define PATIENCE_NS (PATIENCE_S * 1000000000ull)
#define AT_ONCE_MS 20
#define LOOK_NS 10000000u

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

/* The exporter waits for what is asked a second at most: who was held up for longer asks anew. */
enum ipc_client_answer ipc_client_ask(struct ipc_client *client, const struct ipc_handle *handle) {
    const struct ipc_request request = ipc_request_of(handle);
    *client = (struct ipc_client){.until_ns = clock_now_ns() + PATIENCE_NS};
    for (;;) {
        client->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (client->socket < 0) return IPC_CLIENT_NO_ROOM;
        if (!connect_to(client->socket, handle->server, client->until_ns)) return IPC_CLIENT_GONE;
        if (send(client->socket, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) ==
            (ssize_t)sizeof request)
            return IPC_CLIENT_HERE;
        if (errno != EPIPE || clock_now_ns() > client->until_ns) return IPC_CLIENT_GONE;
        close(client->socket);
    }
}

/* A signal may come into the look. */
static bool is_readable(void *argument) {
    struct pollfd readable = {.fd = ((struct ipc_client *)argument)->socket, .events = POLLIN};
    return poll(&readable, 1, 0) > 0;
}

/* Most answers are there at once. The others may take as long as a turn of somebody else, so the
 * wait can be cancelled. */
static enum ipc_client_answer wait_for_packet(struct ipc_client *client) {
    struct pollfd readable = {.fd = client->socket, .events = POLLIN};
    if (poll(&readable, 1, AT_ONCE_MS) == 1) return IPC_CLIENT_HERE;
    for (;;) {
        const uint64_t now_ns = clock_now_ns();
        const struct wait_condition condition = {
            .holds = is_readable, .argument = client, .until_ns = now_ns + LOOK_NS};
        if (now_ns >= client->until_ns) return IPC_CLIENT_GONE;
        if (!wait_for(&condition, "cuIpcOpenMemHandle")) return IPC_CLIENT_CANCELLED;
        if (is_readable(client)) return IPC_CLIENT_HERE;
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

static bool says_to_wait(const struct ipc_batch *batch, ssize_t bytes, size_t descriptors) {
    return bytes >= (ssize_t)offsetof(struct ipc_batch, piece_bytes) && descriptors == 0 &&
           ipc_batch_waits(batch);
}

/* `*again`: the exporter is still busy with it. */
static enum ipc_client_answer take_packet(struct ipc_client *client,
                                          const struct ipc_handle *handle, struct ipc_batch *batch,
                                          int descriptors[IPC_BATCH_MAX], bool *again) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(IPC_BATCH_MAX * sizeof(int))];
    } control;
    struct iovec bytes = {batch, sizeof *batch};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    const ssize_t received = recvmsg(client->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    *again = false;
    if (received <= 0) return IPC_CLIENT_GONE;
    const size_t count = take_descriptors(&message, descriptors);
    *again = says_to_wait(batch, received, count);
    if (*again || ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0 &&
                   ipc_batch_check(batch, (size_t)received, count, handle, &client->progress)))
        return IPC_CLIENT_HERE;
    for (size_t i = 0; i < count; i++)
        close(descriptors[i]);
    return refusal(batch, received, message.msg_flags);
}

enum ipc_client_answer ipc_client_next(struct ipc_client *client, const struct ipc_handle *handle,
                                       struct ipc_batch *batch, int descriptors[IPC_BATCH_MAX]) {
    bool again = true;
    enum ipc_client_answer answer = IPC_CLIENT_HERE;
    while (again && (answer = wait_for_packet(client)) == IPC_CLIENT_HERE) {
        answer = take_packet(client, handle, batch, descriptors, &again);
        client->until_ns = clock_now_ns() + PATIENCE_NS;
    }
    return answer;
}

bool ipc_client_is_done(const struct ipc_client *client) {
    return client->progress.pieces > 0 && client->progress.pieces_heard == client->progress.pieces;
}

void ipc_client_keep(struct ipc_client *client, struct descriptor *connection) {
    if (!descriptor_adopt(connection, client->socket, S_IFSOCK)) connection->fd = -1;
    client->socket = -1;
}

bool ipc_client_tell(const struct descriptor *connection, enum ipc_word word) {
    const uint64_t said = ipc_word_encode(word);
    return descriptor_is_ours(connection) &&
           send(connection->fd, &said, sizeof said, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               (ssize_t)sizeof said;
}
