#include "sharing/ipc_exports.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "allocate/backing.h"
#include "allocate/memory.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/hold.h"
#include "memory/blocks.h"
#include "sharing/ipc_handle.h"
#include "swap/host_arena.h"
#include "swap/mover.h"

/* Guarded by LOCK_IPC. */
static struct export *blocks;
static size_t blocks_used, blocks_room;
static uint64_t last_number;
static _Atomic size_t blocks_there; /* so that who exports nothing takes no lock */
static _Atomic uint32_t making;     /* threads in exports_make */

/* ---- descriptors ------------------------------------------------------------------------------
 */

static void drop_pieces(struct export *block) {
    for (uint32_t i = 0; i < block->piece_count; i++)
        descriptor_close(&block->pieces[i].descriptor);
    free(block->pieces);
    block->pieces = NULL;
    block->piece_count = 0;
}

/* Room for them was made by what a block can have at most. */
static void gather(const struct chunk *chunk, void *argument) {
    struct export *block = argument;
    if (chunk->handle != 0)
        block->pieces[block->piece_count++] = (struct export_piece){
            .descriptor = {.fd = -1}, .handle = chunk->handle, .bytes = chunk->bytes};
}

static CUresult export_piece(struct export_piece *piece) {
    const struct driver *cuda = driver_get();
    int fd = -1;
    const CUresult result =
        cuda->memory_export(&fd, piece->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) return result;
    return descriptor_adopt(&piece->descriptor, fd, 0) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult export_pieces(struct export *block) {
    blocks_visit(block->address, gather, block);
    uint64_t bytes = 0;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < block->piece_count && result == CUDA_SUCCESS; i++) {
        bytes += block->pieces[i].bytes;
        result = export_piece(&block->pieces[i]);
    }
    if (result == CUDA_SUCCESS && bytes != block->bytes) result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult make(struct export *block) {
    const size_t pieces_max = (size_t)(block->bytes / CHUNK_GRANULE);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    block->piece_count = 0;
    block->pieces = malloc(pieces_max * sizeof *block->pieces);
    if (block->pieces != NULL) result = export_pieces(block);
    if (result != CUDA_SUCCESS) drop_pieces(block);
    return result;
}

/* ---- the table; with LOCK_IPC held ------------------------------------------------------------
 */

static bool is_whole(const struct export *block) {
    for (uint32_t i = 0; i < block->piece_count; i++)
        if (!descriptor_is_ours(&block->pieces[i].descriptor)) return false;
    return block->pieces != NULL;
}

static struct export *at(uint64_t address) {
    for (size_t i = 0; i < blocks_used; i++)
        if (blocks[i].address == address) return &blocks[i];
    return NULL;
}

static struct export *numbered(uint64_t number) {
    for (size_t i = 0; i < blocks_used; i++)
        if (blocks[i].number == number) return &blocks[i];
    return NULL;
}

static uint64_t untold; /* a bit for each device on which some moves again, or stays */

static void note_change(const struct export *block) {
    untold |= (uint64_t)1 << block->device;
}

/* It moves again. */
static void let_go(struct export *block) {
    drop_pieces(block);
    if (blocks_unshare(block->address, block->block_id)) note_change(block);
}

/* Takes over the descriptors of what stays anyway; it stays for the table too from then on. False:
 * it does not. */
static bool take_over(struct export *block, struct export *made) {
    if (block->pieces == NULL && !blocks_share(block->address, &block->block_id)) return false;
    note_change(block);
    drop_pieces(block); /* the program has closed some */
    block->pieces = made->pieces;
    block->piece_count = made->piece_count;
    block->idle_since_ns = clock_now_ns();
    made->pieces = NULL;
    made->piece_count = 0;
    return true;
}

/* Makes them where the block is on its device. The driver's export waits for nothing. The block
 * cannot be freed before exports_forget, which waits for the lock. */
static bool share_again(struct export *block) {
    struct export made = *block;
    uint64_t bytes;
    void *copy;
    if (is_whole(block)) return true;
    while ((copy = blocks_end_copy(block->address, &bytes)) != NULL)
        host_arena_give(copy, bytes);
    if (!blocks_share(block->address, &block->block_id)) return false;
    made.pieces = NULL;
    const bool shared = make(&made) == CUDA_SUCCESS && take_over(block, &made);
    drop_pieces(&made);
    blocks_unshare(block->address, block->block_id);
    return shared;
}

/* ---- making and ending ------------------------------------------------------------------------
 */

bool exports_find(uint64_t address, uint64_t *number) {
    if (atomic_load(&blocks_there) == 0) return false;
    HOLD(LOCK_IPC);
    struct export *block = at(address);
    const bool found = block != NULL && is_whole(block);
    if (found) {
        *number = block->number;
        block->idle_since_ns = clock_now_ns();
    }
    return found;
}

static struct export *new_entry(const struct export *block) {
    if (!ARRAY_MAKE_ROOM(blocks, blocks_used, 1, blocks_room)) return NULL;
    struct export *entry = &blocks[blocks_used++];
    *entry = *block;
    entry->pieces = NULL;
    entry->piece_count = 0;
    entry->number = ++last_number;
    atomic_store(&blocks_there, blocks_used);
    return entry;
}

static void remove_entry(struct export *entry) {
    drop_pieces(entry);
    *entry = blocks[--blocks_used];
    atomic_store(&blocks_there, blocks_used);
}

/* Whoever frees the block meanwhile waits for the lock (exports_forget) before its memory goes back
 * to the driver, or has begun before, and then it is not shared any more. */
int exports_make(struct export *block) {
    CUresult result = CUDA_ERROR_ILLEGAL_STATE;
    backing_on_gone(exports_forget);
    lock_take(LOCK_IPC);
    atomic_fetch_add(&making, 1); /* no signal that jumps comes while the lock is held */
    if (blocks_share(block->address, &block->block_id)) {
        result = make(block);
        blocks_unshare(block->address, block->block_id);
    }
    atomic_fetch_sub(&making, 1);
    lock_release(LOCK_IPC);
    return (int)result;
}

bool exports_add(struct export *block, uint64_t *number) {
    lock_take(LOCK_IPC);
    struct export *entry = at(block->address);
    if (entry != NULL && entry->block_id != block->block_id) {
        remove_entry(entry); /* of a block that was freed while another thread entered it */
        entry = NULL;
    }
    if (entry == NULL) entry = new_entry(block);
    const bool added = entry != NULL && (is_whole(entry) || take_over(entry, block));
    if (added) *number = entry->number;
    lock_release(LOCK_IPC);
    drop_pieces(block);
    return added;
}

void exports_forget(uint64_t address) {
    if (atomic_load(&blocks_there) == 0 && atomic_load(&making) == 0) return;
    HOLD(LOCK_IPC);
    struct export *block = at(address);
    if (block != NULL) remove_entry(block);
}

/* ---- for the server ---------------------------------------------------------------------------
 */

void exports_tell(void) {
    lock_take(LOCK_IPC);
    const uint64_t devices = untold;
    untold = 0;
    lock_release(LOCK_IPC);
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        if ((devices >> device & 1) != 0) memory_tell(device);
    if (devices != 0) mover_look(); /* which may have been asked for it before */
}

enum exports_state exports_ask(uint64_t number) {
    HOLD(LOCK_IPC);
    struct export *block = numbered(number);
    if (block == NULL) return EXPORTS_NO_MORE;
    if (share_again(block)) {
        block->importers++;
        return EXPORTS_READY;
    }
    block->waiters++;
    return EXPORTS_AWAY;
}

enum exports_state exports_ask_again(uint64_t number, bool gives_up) {
    HOLD(LOCK_IPC);
    struct export *block = numbered(number);
    if (block == NULL) return EXPORTS_NO_MORE;
    const bool is_there = is_whole(block);
    if (!is_there && !block->has_failed && !gives_up) return EXPORTS_AWAY;
    if (--block->waiters == 0) block->has_failed = false;
    if (!is_there || gives_up) return EXPORTS_FAILED;
    block->importers++;
    return EXPORTS_READY;
}

void exports_returned(uint64_t number) {
    HOLD(LOCK_IPC);
    struct export *block = numbered(number);
    if (block == NULL) return;
    block->importers--;
    block->idle_since_ns = clock_now_ns();
}

void exports_keep(uint64_t number) {
    bool is_news = false;
    HOLD(LOCK_IPC);
    struct export *block = numbered(number);
    if (block == NULL || block->is_kept) return;
    block->is_kept = true;
    blocks_fix(block->address, &is_news);
}

void exports_let_go(uint64_t idle_ns) {
    if (atomic_load(&blocks_there) == 0) return;
    HOLD(LOCK_IPC);
    const uint64_t now_ns = clock_now_ns(); /* under the lock: no block is idle since later */
    for (size_t i = 0; i < blocks_used; i++) {
        struct export *block = &blocks[i];
        const bool has_it = block->importers > 0 || block->waiters > 0 || block->is_kept;
        if (block->pieces == NULL || has_it) continue;
        if (now_ns - block->idle_since_ns >= idle_ns) let_go(block);
    }
}

static bool is_awaited(const struct export *block) {
    return block->waiters > 0 && !block->has_failed && !is_whole(block);
}

bool exports_awaited(void) {
    bool any = false;
    HOLD(LOCK_IPC);
    for (size_t i = 0; i < blocks_used && !any; i++)
        any = is_awaited(&blocks[i]);
    return any;
}

void exports_share_again(void) {
    HOLD(LOCK_IPC);
    for (size_t i = 0; i < blocks_used; i++)
        if (is_awaited(&blocks[i])) blocks[i].has_failed = !share_again(&blocks[i]);
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
    const struct export *block = numbered(number);
    const bool served = block != NULL && is_whole(block) && *first < block->piece_count;
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
        drop_pieces(&blocks[i]);
    blocks_used = 0;
    atomic_store(&blocks_there, 0);
    atomic_store(&making, 0);
}
