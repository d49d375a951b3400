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
#include "base/uncancelled.h"
#include "base/wait.h"

#define PATIENCE_S 10
#define PATIENCE_NS (PATIENCE_S * 1000000000ull)
#define LOOK_MS 10

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

struct packet_wait {
    struct wait_condition condition;
    struct ipc_client *client;
    const struct ipc_handle *handle;
    struct ipc_batch *batch;
    int *descriptors;
    enum ipc_client_answer answer;
};

/* Whether a packet has come that says more than that the exporter is still busy. */
static bool take_packet(void *argument) {
    struct packet_wait *wait = argument;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(IPC_BATCH_MAX * sizeof(int))];
    } control;
    struct iovec bytes = {wait->batch, sizeof *wait->batch};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct pollfd readable = {.fd = wait->client->socket, .events = POLLIN};
    if (poll(&readable, 1, LOOK_MS) <= 0) return false;
    const ssize_t received = recvmsg(readable.fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received <= 0) return true;
    const size_t count = take_descriptors(&message, wait->descriptors);
    wait->client->until_ns = wait->condition.until_ns = clock_now_ns() + PATIENCE_NS;
    if (says_to_wait(wait->batch, received, count)) return false;
    wait->answer = refusal(wait->batch, received, message.msg_flags);
    if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0 &&
        ipc_batch_check(wait->batch, (size_t)received, count, wait->handle,
                        &wait->client->progress))
        wait->answer = IPC_CLIENT_HERE;
    for (size_t i = 0; i < count && wait->answer != IPC_CLIENT_HERE; i++)
        close(wait->descriptors[i]);
    return true;
}

/* Most answers are there at once. The others may take as long as a turn of somebody else: all of it
 * is one wait, so that an interrupt finds it whenever it comes. */
enum ipc_client_answer ipc_client_next(struct ipc_client *client, const struct ipc_handle *handle,
                                       struct ipc_batch *batch, int descriptors[IPC_BATCH_MAX]) {
    struct packet_wait wait = {.client = client, .handle = handle, .batch = batch};
    wait.condition = (struct wait_condition){take_packet, &wait, client->until_ns, .polls = true};
    wait.descriptors = descriptors;
    wait.answer = IPC_CLIENT_GONE;
    return wait_for(&wait.condition, "cuIpcOpenMemHandle") ? wait.answer : IPC_CLIENT_CANCELLED;
}

bool ipc_client_is_done(const struct ipc_client *client) {
    return client->progress.pieces > 0 && client->progress.pieces_heard == client->progress.pieces;
}

void ipc_client_keep(struct ipc_client *client, struct descriptor *connection) {
    if (!descriptor_adopt(connection, client->socket, S_IFSOCK)) connection->fd = -1;
    client->socket = -1;
}

bool ipc_client_tell(const struct descriptor *connection, enum ipc_word word) {
    UNCANCELLED();
    const uint64_t said = ipc_word_encode(word);
    return descriptor_is_ours(connection) &&
           send(connection->fd, &said, sizeof said, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               (ssize_t)sizeof said;
}
