#include "sharing/ipc_exports.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "allocate/backing.h"
#include "base/array.h"
#include "base/hold.h"
#include "sharing/ipc_handle.h"

/* Guarded by LOCK_IPC. */
static struct export *blocks;
static size_t blocks_used, blocks_room;
static uint64_t last_number;
static _Atomic size_t blocks_there; /* so that who exports nothing takes no lock */

void exports_drop_pieces(struct export *block) {
    for (uint32_t i = 0; i < block->piece_count; i++)
        descriptor_close(&block->pieces[i].descriptor);
    free(block->pieces);
    block->pieces = NULL;
    block->piece_count = 0;
}

static bool is_whole(const struct export *block) {
    for (uint32_t i = 0; i < block->piece_count; i++)
        if (!descriptor_is_ours(&block->pieces[i].descriptor)) return false;
    return true;
}

static void remove_at(size_t i) {
    exports_drop_pieces(&blocks[i]);
    blocks[i] = blocks[--blocks_used];
    atomic_store(&blocks_there, blocks_used);
}

/* One whose descriptors the program has closed is of no use any more. */
static struct export *find(uint64_t address) {
    for (size_t i = 0; i < blocks_used; i++) {
        if (blocks[i].address != address) continue;
        if (is_whole(&blocks[i])) return &blocks[i];
        remove_at(i);
        break;
    }
    return NULL;
}

bool exports_find(uint64_t address, uint64_t *number) {
    if (atomic_load(&blocks_there) == 0) return false;
    HOLD(LOCK_IPC);
    const struct export *block = find(address);
    if (block != NULL) *number = block->number;
    return block != NULL;
}

bool exports_add(struct export *block, uint64_t *number) {
    backing_on_gone(exports_forget);
    HOLD(LOCK_IPC);
    const struct export *there = find(block->address);
    if (there != NULL || !ARRAY_MAKE_ROOM(blocks, blocks_used, 1, blocks_room)) {
        exports_drop_pieces(block);
    } else {
        block->number = ++last_number;
        blocks[blocks_used] = *block;
        there = &blocks[blocks_used++];
        atomic_store(&blocks_there, blocks_used);
    }
    if (there != NULL) *number = there->number;
    return there != NULL;
}

void exports_forget(uint64_t address) {
    if (atomic_load(&blocks_there) == 0) return;
    HOLD(LOCK_IPC);
    for (size_t i = 0; i < blocks_used; i++) {
        if (blocks[i].address != address) continue;
        remove_at(i);
        return;
    }
}

/* ---- sending ----------------------------------------------------------------------------------
 */

static ssize_t send_packet(int socket, struct ipc_batch *batch, const int *descriptors) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(IPC_BATCH_MAX * sizeof(int))];
    } control;
    struct iovec bytes = {batch, ipc_batch_bytes(batch)};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (batch->count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(batch->count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(batch->count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, batch->count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static const struct export *find_number(uint64_t number) {
    for (size_t i = 0; i < blocks_used; i++)
        if (blocks[i].number == number) return is_whole(&blocks[i]) ? &blocks[i] : NULL;
    return NULL;
}

static void fill(struct ipc_batch *batch, int *descriptors, const struct export *block,
                 uint32_t first) {
    ipc_batch_begin(batch, IPC_SERVED);
    batch->pieces = block->piece_count;
    batch->bytes = block->bytes;
    memcpy(batch->device_uuid, block->device_uuid, sizeof batch->device_uuid);
    batch->first = first;
    while (batch->count < IPC_BATCH_MAX && first < block->piece_count) {
        descriptors[batch->count] = block->pieces[first].descriptor.fd;
        batch->piece_bytes[batch->count++] = block->pieces[first++].bytes;
    }
}

/* Under the lock, for nobody may close a descriptor, and somebody open another of its number,
 * before it is sent. */
enum exports_answer exports_send(int socket, uint64_t number, uint32_t *first) {
    struct ipc_batch batch;
    int descriptors[IPC_BATCH_MAX];
    lock_take(LOCK_IPC);
    const struct export *block = find_number(number);
    const bool served = block != NULL && *first < block->piece_count;
    if (served)
        fill(&batch, descriptors, block, *first);
    else
        ipc_batch_begin(&batch, IPC_UNKNOWN);
    const ssize_t sent = send_packet(socket, &batch, descriptors);
    const int error = errno;
    lock_release(LOCK_IPC);
    if (sent < 0) {
        const bool full = error == EAGAIN || error == EINTR || error == ENOBUFS ||
                          error == ETOOMANYREFS || error == ENOMEM;
        return full ? EXPORTS_WAIT : EXPORTS_GONE;
    }
    if (!served) return EXPORTS_GONE;
    *first += batch.count;
    if (*first == batch.pieces) *first = 0;
    return EXPORTS_SENT;
}

/* The child's copies would keep the memory on the device. */
void exports_after_fork(void) {
    for (size_t i = 0; i < blocks_used; i++)
        exports_drop_pieces(&blocks[i]);
    blocks_used = 0;
    atomic_store(&blocks_there, 0);
}
