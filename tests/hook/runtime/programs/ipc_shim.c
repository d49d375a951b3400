/* ipc_handle.c behind plain functions, for ctypes. */
#include "sharing/ipc_handle.h"

void ih_encode(const struct ipc_handle *handle, uint8_t *encoded) {
    ipc_handle_encode(handle, encoded);
}

int ih_decode(const uint8_t *encoded, struct ipc_handle *handle) {
    return (int)ipc_handle_decode(encoded, handle);
}

size_t ih_server_name(uint64_t server, char *name) {
    return ipc_server_name(server, name);
}

void ih_request(const struct ipc_handle *handle, struct ipc_request *request) {
    *request = ipc_request_of(handle);
}

int ih_request_check(const void *packet, size_t bytes, const uint8_t *token, uint64_t *block) {
    struct ipc_request request;
    const bool good = ipc_request_check(packet, bytes, token, &request);
    if (good) *block = request.block;
    return good;
}

size_t ih_batch_bytes(const struct ipc_batch *batch) {
    return ipc_batch_bytes(batch);
}

void ih_batch_begin(struct ipc_batch *batch, int status) {
    ipc_batch_begin(batch, (enum ipc_status)status);
}

int ih_batch_check(const struct ipc_batch *batch, size_t bytes, size_t descriptors,
                   const struct ipc_handle *handle, struct ipc_progress *progress) {
    return ipc_batch_check(batch, bytes, descriptors, handle, progress);
}

uint64_t ih_word(int word) {
    return ipc_word_encode((enum ipc_word)word);
}

int ih_word_of(const void *packet, size_t bytes) {
    return (int)ipc_word_decode(packet, bytes);
}

int ih_batch_waits(const struct ipc_batch *batch) {
    return ipc_batch_waits(batch);
}
