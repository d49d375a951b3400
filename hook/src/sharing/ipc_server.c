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
#include "base/ending.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/uncancelled.h"
#include "gate/gate.h"
#include "sharing/ipc_exports.h"
#include "sharing/ipc_importers.h"

#define BACKLOG 128
#define REQUEST_PATIENCE_MS 1000
#define REPLY_PATIENCE_NS 10000000000u
#define FULL_PAUSE_MS 5
#define NO_DESCRIPTOR_PAUSE_NS 20000000
#define CANCELLED_PAUSE_NS 300000000u
#define PREDECESSOR_PAUSE_NS 5000000u
#define WAITING_LOOK_MS 5
#define LOOK_MS 250
/* A handle is most often opened at once, and more than once. */
#define IDLE_NS 1000000000u

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

/* All of a block that is there. */
static void serve(int client, uint64_t number) {
    const uint64_t until_ns = clock_now_ns() + REPLY_PATIENCE_NS;
    uint32_t first = 0;
    enum exports_answer answer;
    do {
        answer = exports_send(client, number, &first);
        if (answer == EXPORTS_WAIT) wait_for_room(client);
    } while (answer == EXPORTS_WAIT ? clock_now_ns() < until_ns
                                    : answer == EXPORTS_SENT && first > 0);
}

/* ---- blocks that have to come back ------------------------------------------------------------
 */

static _Atomic bool comes_back; /* the thread for that runs */

/* Waits for the turn as a call of the program does, and ends when nothing is waited for. An
 * interrupt cancels this wait too, which is then begun anew. */
static void *bring_back(void *nothing) {
    const struct gate_call call = {GATE_LOOK, GATE_STREAM_LEGACY, NULL, "cuIpcOpenMemHandle"};
    pthread_setname_np(pthread_self(), "gpushare-ipc-in");
    while (exports_awaited() && !ending_has_begun()) {
        const enum gate_answer answer = gate_enter(call);
        if (answer == GATE_CANCELLED) {
            clock_sleep_ns(CANCELLED_PAUSE_NS);
            continue;
        }
        if (ending_driver_use_begin()) {
            exports_share_again();
            exports_tell();
            ending_driver_use_end();
        }
        if (answer == GATE_PASS) gate_leave(call, 0);
    }
    atomic_store(&comes_back, false);
    return nothing;
}

static void bring_blocks_back(void) {
    if (atomic_exchange(&comes_back, true)) return;
    if (!own_thread_start(bring_back, NULL)) atomic_store(&comes_back, false);
}

/* ---- the thread -------------------------------------------------------------------------------
 */

/* It is an importer before it has the first descriptor. */
static void take_in(struct descriptor *connection, const uint8_t *token) {
    struct ipc_request request;
    struct ipc_batch refusal;
    if (descriptor_peer_uid(connection->fd) != geteuid() ||
        !receive_request(connection->fd, token, &request)) {
        descriptor_close(connection);
        return;
    }
    enum exports_state state = EXPORTS_FAILED;
    if (ending_driver_use_begin()) {
        state = exports_ask(request.block);
        ending_driver_use_end();
    }
    const bool is_taken = state == EXPORTS_READY || state == EXPORTS_AWAY;
    if (is_taken && importers_add(connection, request.block, state == EXPORTS_AWAY)) {
        if (state == EXPORTS_READY) serve(connection->fd, request.block);
        return;
    }
    if (state == EXPORTS_READY) exports_returned(request.block);
    if (state == EXPORTS_AWAY) exports_ask_again(request.block, true);
    ipc_batch_begin(&refusal, IPC_UNKNOWN);
    if (state == EXPORTS_NO_MORE)
        send(connection->fd, &refusal, ipc_batch_bytes(&refusal), MSG_DONTWAIT | MSG_NOSIGNAL);
    descriptor_close(connection);
}

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
    take_in(&connection, served_at->token);
    lock_take(LOCK_IPC);
    served.fd = -1; /* closed, or the importers' */
    lock_release(LOCK_IPC);
}

static _Atomic bool has_server; /* a thread has the importers */

static int pause_ms(bool some_wait) {
    if (some_wait) return WAITING_LOOK_MS;
    return LOOK_MS; /* another thread may have exported something */
}

/* Until somebody comes or says something, or it is time to look. */
static void pause_for(const struct server *served_at, int pause) {
    size_t count;
    struct pollfd *polled = importers_poll(1, &count);
    struct pollfd alone;
    if (polled == NULL) count = 1;
    struct pollfd *const first = polled != NULL ? polled : &alone;
    first[0] = (struct pollfd){.fd = served_at->socket.fd, .events = POLLIN};
    const int ready = poll(first, count, pause);
    const bool comes = ready > 0 && (first[0].revents & POLLIN) != 0;
    free(polled);
    if (comes && descriptor_is_ours(&served_at->socket)) accept_one(served_at);
}

/* Ends when the program has closed our socket; the next export starts another one, which waits
 * until this one has seen that: the importers are one thread's. */
static void *run(void *argument) {
    const struct server served_at = *(struct server *)argument;
    free(argument);
    pthread_setname_np(pthread_self(), "gpushare-ipc");
    while (atomic_exchange(&has_server, true))
        clock_sleep_ns(PREDECESSOR_PAUSE_NS);
    while (descriptor_is_ours(&served_at.socket)) {
        const bool some_wait = importers_serve(serve);
        if (some_wait) bring_blocks_back();
        pause_for(&served_at, pause_ms(some_wait));
        importers_look();
        exports_let_go(IDLE_NS);
        exports_tell();
    }
    atomic_store(&has_server, false);
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
    UNCANCELLED();
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
    importers_after_fork();
    atomic_store(&comes_back, false);
    atomic_store(&has_server, false);
}
