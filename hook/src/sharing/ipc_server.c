#include "sharing/ipc_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "sharing/ipc_exports.h"

#define BACKLOG 128
#define REQUEST_PATIENCE_MS 1000
#define REPLY_PATIENCE_NS 10000000000u
#define FULL_PAUSE_MS 5
#define NO_DESCRIPTOR_PAUSE_NS 20000000

struct server {
    struct descriptor socket;
    uint64_t number;
    uint8_t token[IPC_TOKEN_BYTES];
};

/* Guarded by LOCK_IPC. */
static struct server server = {.socket.fd = -1};
static struct descriptor served = {.fd = -1}; /* the connection under way */

/* ---- one importer -----------------------------------------------------------------------------
 */

static bool receive_request(int client, const uint8_t *token, struct ipc_request *request) {
    char packet[sizeof *request + 1];
    struct pollfd readable = {.fd = client, .events = POLLIN};
    if (poll(&readable, 1, REQUEST_PATIENCE_MS) != 1) return false;
    const ssize_t bytes = recv(client, packet, sizeof packet, MSG_DONTWAIT);
    return bytes > 0 && ipc_request_check(packet, (size_t)bytes, token, request);
}

static void wait_for_room(int client) {
    struct pollfd writable = {.fd = client, .events = POLLOUT};
    poll(&writable, 1, FULL_PAUSE_MS);
    clock_sleep_ns(1000000); /* descriptors on their way may be too many though there is room */
}

static void serve(int client, const uint8_t *token) {
    struct ipc_request request;
    if (descriptor_peer_uid(client) != geteuid()) return;
    if (!receive_request(client, token, &request)) return;
    const uint64_t until_ns = clock_now_ns() + REPLY_PATIENCE_NS;
    uint32_t first = 0;
    enum exports_answer answer;
    do {
        answer = exports_send(client, request.block, &first);
        if (answer == EXPORTS_WAIT) wait_for_room(client);
    } while (answer == EXPORTS_WAIT ? clock_now_ns() < until_ns
                                    : answer == EXPORTS_SENT && first > 0);
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void accept_one(const struct server *served_at) {
    const int client = accept4(served_at->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
        if (errno == EMFILE || errno == ENFILE) clock_sleep_ns(NO_DESCRIPTOR_PAUSE_NS);
        return;
    }
    struct descriptor connection;
    if (!descriptor_adopt(&connection, client, S_IFSOCK)) return;
    lock_take(LOCK_IPC);
    served = connection;
    lock_release(LOCK_IPC);
    serve(connection.fd, served_at->token);
    lock_take(LOCK_IPC);
    descriptor_close(&served);
    lock_release(LOCK_IPC);
}

/* Ends when the program has closed our socket; the next export starts another one. */
static void *run(void *argument) {
    const struct server served_at = *(struct server *)argument;
    free(argument);
    pthread_setname_np(pthread_self(), "gpushare-ipc");
    while (descriptor_is_ours(&served_at.socket)) {
        struct pollfd readable = {.fd = served_at.socket.fd, .events = POLLIN};
        if (poll(&readable, 1, -1) == 1 && descriptor_is_ours(&served_at.socket))
            accept_one(&served_at);
    }
    return NULL;
}

static bool start_thread(const struct server *started) {
    struct server *copy = malloc(sizeof *copy);
    if (copy == NULL) return false;
    *copy = *started;
    const bool runs = own_thread_start(run, copy);
    if (!runs) free(copy);
    return runs;
}

static bool listen_at(struct server *fresh) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = ipc_server_name(fresh->number, address.sun_path + 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !descriptor_adopt(&fresh->socket, fd, S_IFSOCK)) return false;
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    if (bind(fresh->socket.fd, (const struct sockaddr *)&address, bytes) == 0 &&
        listen(fresh->socket.fd, BACKLOG) == 0)
        return true;
    descriptor_close(&fresh->socket);
    return false;
}

bool ipc_server_start(struct ipc_handle *handle) {
    HOLD(LOCK_IPC);
    bool runs = descriptor_is_ours(&server.socket);
    if (!runs) {
        struct server fresh = {.socket.fd = -1};
        runs = getrandom(&fresh.number, sizeof fresh.number, 0) == sizeof fresh.number &&
               getrandom(fresh.token, sizeof fresh.token, 0) == sizeof fresh.token &&
               listen_at(&fresh);
        if (runs && !start_thread(&fresh)) {
            descriptor_close(&fresh.socket);
            runs = false;
        }
        if (runs) server = fresh;
        log_debug("ipc: serving %s", runs ? "begins" : "is not possible");
    }
    handle->server = server.number;
    memcpy(handle->token, server.token, IPC_TOKEN_BYTES);
    return runs;
}

bool ipc_server_is_here(uint64_t number) {
    HOLD(LOCK_IPC);
    return server.socket.fd >= 0 && server.number == number;
}

void ipc_server_after_fork(void) {
    descriptor_close(&served);
    descriptor_close(&server.socket);
    server.number = 0;
}
