#include "sharing/ipc_importers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hold.h"
#include "sharing/ipc_exports.h"
#include "sharing/ipc_handle.h"

#define STILL_WAITS_NS 1000000000u

static struct importer *importers;
static size_t importers_used, importers_room;

/* ---- processes --------------------------------------------------------------------------------
 */

struct process {
    char state;
    long threads;
    uint64_t started;
};

/* The program's name stands in brackets, and may have some itself. */
static bool look_at_process(int32_t pid, struct process *process) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = 0;
    const char *rest = strrchr(text, ')');
    unsigned long long started = 0;
    if (rest == NULL ||
        sscanf(rest + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
               &process->state, &process->threads, &started) != 3)
        return false;
    process->started = started;
    return true;
}

/* Only a process that is gone has given all memory back. Where nobody can tell, it lives. */
static bool has_died(const struct importer *importer) {
    struct process process;
    if (importer->pid <= 0 || importer->started == 0) return false;
    if (!look_at_process(importer->pid, &process))
        return kill(importer->pid, 0) != 0 && errno == ESRCH;
    const bool is_over = (process.state == 'Z' || process.state == 'X') && process.threads <= 1;
    return is_over || process.started != importer->started;
}

/* ---- the table --------------------------------------------------------------------------------
 */

bool importers_add(const struct descriptor *connection, uint64_t number, bool waits) {
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    struct process process;
    getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    const bool known = peer.pid > 0 && look_at_process(peer.pid, &process);
    HOLD(LOCK_IPC);
    if (!ARRAY_MAKE_ROOM(importers, importers_used, 1, importers_room)) return false;
    importers[importers_used++] = (struct importer){
        .connection = *connection,
        .number = number,
        .pid = known ? peer.pid : 0,
        .started = known ? process.started : 0,
        .waits = waits,
    };
    return true;
}

static void remove_at(size_t i) {
    HOLD(LOCK_IPC);
    descriptor_close(&importers[i].connection);
    importers[i] = importers[--importers_used];
}

struct pollfd *importers_poll(size_t from, size_t *count) {
    struct pollfd *polled = calloc(from + importers_used, sizeof *polled);
    *count = from;
    for (size_t i = 0; polled != NULL && i < importers_used; i++)
        if (!importers[i].is_quiet)
            polled[(*count)++] =
                (struct pollfd){.fd = importers[i].connection.fd, .events = POLLIN};
    return polled;
}

/* What it has said, and whether it goes on. */
static bool hear(const struct importer *importer, enum ipc_word *word) {
    char packet[64];
    *word = IPC_WORD_NONE;
    const ssize_t bytes = recv(importer->connection.fd, packet, sizeof packet, MSG_DONTWAIT);
    if (bytes > 0) *word = ipc_word_decode(packet, (size_t)bytes);
    return bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EINTR));
}

/* True: it is an importer no more. */
static bool look_at(struct importer *importer) {
    enum ipc_word word = IPC_WORD_NONE;
    if (importer->is_quiet) {
        if (!has_died(importer)) return false;
        exports_returned(importer->number);
        return true;
    }
    if (!descriptor_is_ours(&importer->connection)) { /* the program has closed it */
        if (importer->waits)
            exports_ask_again(importer->number, true);
        else
            exports_keep(importer->number);
        return true;
    }
    while (hear(importer, &word) && word != IPC_WORD_BYE) {
        if (word == IPC_WORD_NONE) return false;
        exports_keep(importer->number);
    }
    if (importer->waits) {
        exports_ask_again(importer->number, true);
        return true;
    }
    if (word == IPC_WORD_BYE) exports_returned(importer->number);
    importer->is_quiet = word != IPC_WORD_BYE;
    return word == IPC_WORD_BYE;
}

void importers_look(void) {
    for (size_t i = importers_used; i-- > 0;)
        if (look_at(&importers[i])) remove_at(i);
}

/* ---- those that wait --------------------------------------------------------------------------
 */

static void say(const struct importer *importer, enum ipc_status status) {
    struct ipc_batch batch;
    ipc_batch_begin(&batch, status);
    send(importer->connection.fd, &batch, ipc_batch_bytes(&batch), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* True: it waits on, or has the block from now on. */
static bool serve_one(struct importer *importer, void (*serve)(int connection, uint64_t number)) {
    const uint64_t now_ns = clock_now_ns();
    switch (exports_ask_again(importer->number, false)) {
        case EXPORTS_READY:
            importer->waits = false;
            serve(importer->connection.fd, importer->number);
            return true;
        case EXPORTS_AWAY:
            if (now_ns - importer->told_at_ns < STILL_WAITS_NS) return true;
            importer->told_at_ns = now_ns;
            say(importer, IPC_WAITS);
            return true;
        case EXPORTS_FAILED:
            return false;
        case EXPORTS_NO_MORE:
            say(importer, IPC_UNKNOWN);
            return false;
    }
    return false;
}

bool importers_serve(void (*serve)(int connection, uint64_t number)) {
    bool any = false;
    for (size_t i = importers_used; i-- > 0;) {
        if (!importers[i].waits) continue;
        if (!serve_one(&importers[i], serve))
            remove_at(i);
        else
            any = any || importers[i].waits;
    }
    return any;
}

/* The parent's importers are not the child's, whose copies would keep their connections open. */
void importers_after_fork(void) {
    for (size_t i = 0; i < importers_used; i++)
        descriptor_close(&importers[i].connection);
    importers_used = 0;
}
