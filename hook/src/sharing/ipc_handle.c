#include "sharing/ipc_handle.h"

#include <string.h>

static const uint8_t MAGIC[8] = {'g', 'p', 'u', 's', 'h', 'a', 'r', 'e'};
#define REQUEST_MAGIC 0x316b736170697067u   /* gpipask1 */
#define BATCH_MAGIC 0x3176696770697067u     /* gpipgiv1 */
#define BYE_MAGIC 0x3165796270697067u       /* gpipbye1 */
#define KEEP_MAGIC 0x70656b3170697067u      /* gpip1kep */
#define BLOCK_BYTES_MAX ((uint64_t)1 << 46) /* sums of sizes do not overflow */

/* The 64 bytes. */
struct encoded {
    uint8_t magic[sizeof MAGIC];
    struct ipc_handle handle;
    uint64_t sum; /* of what is before it */
};
_Static_assert(sizeof(struct encoded) == IPC_HANDLE_BYTES, "a handle without gaps");

/* FNV-1a. */
static uint64_t sum_of(const uint8_t *data, size_t bytes) {
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ data[i]) * 0x100000001b3u;
    return sum;
}

void ipc_handle_encode(const struct ipc_handle *handle, uint8_t encoded[IPC_HANDLE_BYTES]) {
    struct encoded made = {.handle = *handle};
    memcpy(made.magic, MAGIC, sizeof MAGIC);
    made.sum = sum_of((const uint8_t *)&made, offsetof(struct encoded, sum));
    memcpy(encoded, &made, sizeof made);
}

enum ipc_handle_kind ipc_handle_decode(const uint8_t encoded[IPC_HANDLE_BYTES],
                                       struct ipc_handle *handle) {
    struct encoded given;
    memcpy(&given, encoded, sizeof given);
    if (memcmp(given.magic, MAGIC, sizeof MAGIC) != 0) return IPC_HANDLE_FOREIGN;
    *handle = given.handle;
    const bool fits =
        handle->bytes > 0 && handle->bytes < BLOCK_BYTES_MAX && handle->offset < BLOCK_BYTES_MAX;
    const bool is_whole = given.sum == sum_of(encoded, offsetof(struct encoded, sum));
    return fits && is_whole ? IPC_HANDLE_OURS : IPC_HANDLE_DAMAGED;
}

size_t ipc_server_name(uint64_t server, char name[IPC_SERVER_NAME_BYTES]) {
    static const char PREFIX[] = "gpushare-memory-";
    static const char DIGITS[] = "0123456789abcdef";
    size_t length = sizeof PREFIX - 1;
    memcpy(name, PREFIX, length);
    for (int shift = 60; shift >= 0 && length < IPC_SERVER_NAME_BYTES; shift -= 4)
        name[length++] = DIGITS[server >> shift & 15];
    return length;
}

struct ipc_request ipc_request_of(const struct ipc_handle *handle) {
    struct ipc_request request = {.magic = REQUEST_MAGIC, .block = handle->block};
    memcpy(request.token, handle->token, IPC_TOKEN_BYTES);
    return request;
}

/* All of it is looked at, so that the time tells nothing. */
static bool is_token(const uint8_t *said, const uint8_t *token) {
    unsigned differs = 0;
    for (size_t i = 0; i < IPC_TOKEN_BYTES; i++)
        differs |= (unsigned)said[i] ^ token[i];
    return differs == 0;
}

bool ipc_request_check(const void *packet, size_t bytes, const uint8_t token[IPC_TOKEN_BYTES],
                       struct ipc_request *request) {
    if (bytes != sizeof *request) return false;
    memcpy(request, packet, sizeof *request);
    return request->magic == REQUEST_MAGIC && is_token(request->token, token);
}

uint64_t ipc_word_encode(enum ipc_word word) {
    return word == IPC_WORD_BYE ? BYE_MAGIC : word == IPC_WORD_KEEP ? KEEP_MAGIC : 0;
}

enum ipc_word ipc_word_decode(const void *packet, size_t bytes) {
    uint64_t magic = 0;
    if (bytes == sizeof magic) memcpy(&magic, packet, sizeof magic);
    if (magic == BYE_MAGIC) return IPC_WORD_BYE;
    return magic == KEEP_MAGIC ? IPC_WORD_KEEP : IPC_WORD_NONE;
}

void ipc_batch_begin(struct ipc_batch *batch, enum ipc_status status) {
    memset(batch, 0, sizeof *batch);
    batch->magic = BATCH_MAGIC;
    batch->status = status;
}

size_t ipc_batch_bytes(const struct ipc_batch *batch) {
    return offsetof(struct ipc_batch, piece_bytes) + batch->count * sizeof batch->piece_bytes[0];
}

bool ipc_batch_waits(const struct ipc_batch *batch) {
    return batch->magic == BATCH_MAGIC && batch->status == IPC_WAITS && batch->count == 0;
}

static bool begins(const struct ipc_batch *batch, const struct ipc_handle *handle) {
    return batch->pieces > 0 && batch->pieces <= IPC_PIECES_MAX && batch->bytes < BLOCK_BYTES_MAX &&
           handle->offset < batch->bytes && handle->bytes <= batch->bytes - handle->offset;
}

bool ipc_batch_check(const struct ipc_batch *batch, size_t bytes, size_t descriptors,
                     const struct ipc_handle *handle, struct ipc_progress *progress) {
    if (bytes < offsetof(struct ipc_batch, piece_bytes) || batch->magic != BATCH_MAGIC ||
        batch->status != IPC_SERVED || batch->count == 0 || batch->count > IPC_BATCH_MAX ||
        batch->count != descriptors || bytes != ipc_batch_bytes(batch))
        return false;
    if (progress->pieces_heard == 0) {
        if (!begins(batch, handle)) return false;
        *progress = (struct ipc_progress){.pieces = batch->pieces, .bytes = batch->bytes};
    }
    if (batch->pieces != progress->pieces || batch->bytes != progress->bytes ||
        batch->first != progress->pieces_heard ||
        batch->count > progress->pieces - progress->pieces_heard)
        return false;
    for (uint32_t i = 0; i < batch->count; i++) {
        const uint64_t piece_bytes = batch->piece_bytes[i];
        if (piece_bytes == 0 || piece_bytes % IPC_GRANULE != 0 ||
            piece_bytes > progress->bytes - progress->bytes_heard)
            return false;
        progress->bytes_heard += piece_bytes;
    }
    progress->pieces_heard += batch->count;
    return progress->pieces_heard < progress->pieces || progress->bytes_heard == progress->bytes;
}
