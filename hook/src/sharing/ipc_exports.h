/* Blocks of movable memory that other processes may map: a descriptor for each chunk, kept until
 * the block is freed. LOCK_IPC guards the table. */
#pragma once

#include "base/descriptor.h"

struct export_piece {
    struct descriptor descriptor;
    uint64_t handle; /* of the chunk, while the descriptor is made */
    uint64_t bytes;
};

struct export {
    uint64_t address; /* of the block */
    uint64_t bytes;
    uint64_t number; /* never used twice */
    uint8_t device_uuid[16];
    uint32_t piece_count;
    struct export_piece *pieces; /* from malloc; the table's, once it is in there */
};

/* The number of a block that is there, with all its descriptors. */
bool exports_find(uint64_t address, uint64_t *number);
/* Enters a block, unless another thread has done so meanwhile; either way `number` is the one to
 * use. False: no host memory. What is not kept is closed and freed. */
bool exports_add(struct export *block, uint64_t *number);
/* The block at this address is about to be freed: its descriptors would keep the memory. */
void exports_forget(uint64_t address);
void exports_drop_pieces(struct export *block);

enum exports_answer {
    EXPORTS_SENT, /* `first` is the next piece; all are sent when it is 0 again */
    EXPORTS_WAIT, /* the peer has no room */
    EXPORTS_GONE, /* the peer, or the block */
};

/* For ipc_server.c: sends what fits into one packet, without waiting. */
enum exports_answer exports_send(int socket, uint64_t number, uint32_t *first);

void exports_after_fork(void);
