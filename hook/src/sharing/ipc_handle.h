/* Pure: what our cuIpcMemHandles say, and what an importing process and the exporting one say to
 * each other (ipc_client.c, ipc_server.c). All of it is taken from outside, so all of it is checked
 * here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IPC_HANDLE_BYTES 64 /* CU_IPC_HANDLE_SIZE */
#define IPC_TOKEN_BYTES 16
#define IPC_SERVER_NAME_BYTES 32
/* As many descriptors as the kernel lets pass with one message. */
#define IPC_BATCH_MAX 253
#define IPC_PIECES_MAX (1u << 20)
#define IPC_GRANULE ((uint64_t)2 << 20)

/* One allocation in a block of device memory that an exporter serves. */
struct ipc_handle {
    uint64_t server; /* the exporter's socket; no two have the same number */
    uint8_t token[IPC_TOKEN_BYTES];
    uint64_t block;  /* the exporter's number of the block, never used twice */
    uint64_t offset; /* of the allocation in the block */
    uint64_t bytes;  /* of the allocation */
};

enum ipc_handle_kind {
    IPC_HANDLE_FOREIGN, /* not made here: the driver's */
    IPC_HANDLE_OURS,
    IPC_HANDLE_DAMAGED, /* made here, and something has changed it */
};

void ipc_handle_encode(const struct ipc_handle *handle, uint8_t encoded[IPC_HANDLE_BYTES]);
enum ipc_handle_kind ipc_handle_decode(const uint8_t encoded[IPC_HANDLE_BYTES],
                                       struct ipc_handle *handle);

/* The abstract socket's name, behind its leading zero; without a zero at the end. Returns its
 * length. */
size_t ipc_server_name(uint64_t server, char name[IPC_SERVER_NAME_BYTES]);

/* One packet from the importer to the exporter. */
struct ipc_request {
    uint64_t magic;
    uint64_t block;
    uint8_t token[IPC_TOKEN_BYTES];
};

enum ipc_status {
    IPC_SERVED = 0,
    IPC_UNKNOWN = 1, /* no such block, or not any more */
    IPC_WAITS = 2,   /* it has to come back to the device first: another packet follows */
};

/* What an importer says later, on the same connection. */
enum ipc_word {
    IPC_WORD_NONE,
    IPC_WORD_BYE,  /* it has nothing of the block any more */
    IPC_WORD_KEEP, /* others may have it, unseen: it is to stay as long as there is the block */
};
uint64_t ipc_word_encode(enum ipc_word word);
enum ipc_word ipc_word_decode(const void *packet, size_t bytes);

/* Packets from the exporter: each has the descriptors of `count` pieces, from the piece `first` on.
 * Those behind `pieces` stay away where there are fewer than IPC_BATCH_MAX. */
struct ipc_batch {
    uint64_t magic;
    uint32_t status; /* enum ipc_status */
    uint32_t pieces; /* of the whole block */
    uint64_t bytes;  /* of the whole block */
    uint8_t device_uuid[16];
    uint32_t first;
    uint32_t count;
    uint64_t piece_bytes[IPC_BATCH_MAX];
};

struct ipc_request ipc_request_of(const struct ipc_handle *handle);
/* Whether these bytes are a request with this token. */
bool ipc_request_check(const void *packet, size_t bytes, const uint8_t token[IPC_TOKEN_BYTES],
                       struct ipc_request *request);

void ipc_batch_begin(struct ipc_batch *batch, enum ipc_status status);
size_t ipc_batch_bytes(const struct ipc_batch *batch);
/* It says that another one follows, and nothing else. */
bool ipc_batch_waits(const struct ipc_batch *batch);

/* What an importer has heard so far of a block. */
struct ipc_progress {
    uint32_t pieces, pieces_heard;
    uint64_t bytes, bytes_heard;
};

/* Whether a packet with so many bytes and descriptors is what comes next; counts it in. The first
 * one says how large the block is, and must fit the handle. */
bool ipc_batch_check(const struct ipc_batch *batch, size_t bytes, size_t descriptors,
                     const struct ipc_handle *handle, struct ipc_progress *progress);
