#include "agent/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/options.h"

void link_start(struct link *link) {
    link->socket.fd = -1;
    link->received_bytes = link->received_taken = link->unsent_bytes = 0;
}

/* Why there is no connection, and what to do. `peer_uid` is 0 where there was none at all. */
static void explain(const char *path, int error, uint32_t peer_uid, char *problem, size_t bytes) {
    if (peer_uid != 0)
        snprintf(problem, bytes,
                 "the socket %s is served by user %u, who is neither root nor you. Remove it, or "
                 "name the service account in GPUSHARE_SCHEDULER_UID if that is the scheduler.",
                 path, peer_uid);
    else if (error == EACCES || error == EPERM)
        snprintf(problem, bytes,
                 "this user may not open the GPU scheduler's socket %s. Ask its owner for "
                 "permission, or start a scheduler of your own.",
                 path);
    else
        snprintf(problem, bytes,
                 "no GPU scheduler answers at %s (%s). Start it with `jupyter gpushare scheduler`.",
                 path, strerror(error));
}

bool link_connect(struct link *link, char *problem, size_t problem_bytes) {
    const struct options *options = options_get();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", options->socket_path);
    link_start(link);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool connected =
        fd >= 0 && descriptor_adopt(&link->socket, fd, S_IFSOCK) &&
        connect(link->socket.fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    const int error = errno;
    const uint32_t peer_uid = connected ? descriptor_peer_uid(link->socket.fd) : 0;
    codec_decoder_init(&link->decoder, MESSAGE_TO_HOOK);
    if (connected && (peer_uid == 0 || peer_uid == geteuid() || peer_uid == options->scheduler_uid))
        return true;
    explain(options->socket_path, error, peer_uid, problem, problem_bytes);
    link_close(link);
    return false;
}

enum link_answer link_flush(struct link *link) {
    while (link->unsent_bytes > 0) {
        if (!descriptor_is_ours(&link->socket)) return LINK_STOLEN;
        /* send() besides refuses everything that is not a socket. */
        ssize_t sent =
            send(link->socket.fd, link->unsent, link->unsent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? LINK_EMPTY : LINK_GONE;
        link->unsent_bytes -= (size_t)sent;
        memmove(link->unsent, link->unsent + sent, link->unsent_bytes);
    }
    return LINK_EMPTY;
}

bool link_send(struct link *link, const struct message *message) {
    if (link->socket.fd < 0) return true;
    if (sizeof(link->unsent) - link->unsent_bytes < GPUSHARE_FRAME_BYTES_MAX) return false;
    link->unsent_bytes += codec_encode(message, link->unsent + link->unsent_bytes,
                                       sizeof(link->unsent) - link->unsent_bytes);
    return true;
}

static enum link_answer fill(struct link *link) {
    if (!descriptor_is_ours(&link->socket)) return LINK_STOLEN;
    ssize_t got = recv(link->socket.fd, link->received, sizeof(link->received), MSG_DONTWAIT);
    if (got < 0) {
        bool nothing = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        return nothing ? LINK_EMPTY : LINK_GONE;
    }
    if (got == 0) return LINK_GONE;
    link->received_bytes = (size_t)got;
    link->received_taken = 0;
    return LINK_MESSAGE;
}

enum link_answer link_receive(struct link *link, struct message *message) {
    for (;;) {
        size_t taken = 0;
        enum codec_status status =
            codec_decode(&link->decoder, link->received + link->received_taken,
                         link->received_bytes - link->received_taken, &taken, message);
        link->received_taken += taken;
        if (status == CODEC_MESSAGE) return LINK_MESSAGE;
        if (status == CODEC_WRONG_VERSION) return LINK_VERSION;
        if (status != CODEC_NEED_MORE) return LINK_BROKEN;
        enum link_answer answer = fill(link);
        if (answer != LINK_MESSAGE) return answer;
    }
}

bool link_has_part(const struct link *link) {
    return link->socket.fd >= 0 && link->decoder.bytes > 0;
}

void link_close(struct link *link) {
    descriptor_close(&link->socket);
    link_start(link);
}
