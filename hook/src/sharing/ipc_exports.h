/* Blocks of movable memory that other processes may map: a descriptor for each chunk, while
 * somebody has it. Nobody: the descriptors go, and the block moves again, until somebody asks for
 * it by its number (decisions/0009). LOCK_IPC guards the table. */
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
    uint64_t block_id; /* of the block: the address may be another one's later */
    uint64_t number;   /* never used twice */
    int32_t device;    /* ordinal */
    uint8_t device_uuid[16];
    uint32_t piece_count;
    struct export_piece *pieces; /* from malloc; NULL: it moves */
    uint32_t importers;          /* that may have it */
    uint32_t waiters;            /* that wait for it to be shared again */
    uint64_t idle_since_ns;      /* nobody has had it since then */
    bool is_kept;    /* who has it is not known: it stays as long as there is the block */
    bool has_failed; /* it could not be shared again for those that wait */
};

/* Makes what other processes need of a block that is on its device and stays there (blocks_share),
 * but for its number. What the driver answers; CUDA_ERROR_ILLEGAL_STATE while it is being freed. */
int exports_make(struct export *block);

/* The number of a block that is there, with all its descriptors. */
bool exports_find(uint64_t address, uint64_t *number);
/* Enters a block that stays, unless another thread has done so meanwhile; either way `number` is
 * the one to use. False: no host memory. What is not kept is closed and freed. */
bool exports_add(struct export *block, uint64_t *number);
/* The block at this address is about to be freed: its descriptors would keep the memory. */
void exports_forget(uint64_t address);

/* ---- for ipc_server.c ---- */

enum exports_state {
    EXPORTS_READY,  /* there are descriptors of it; one more importer may have it from then on */
    EXPORTS_AWAY,   /* it has to come back to the device first: the calling thread waits for that */
    EXPORTS_FAILED, /* it is there, and cannot be shared */
    EXPORTS_NO_MORE /* there is no such block any more */
};
/* Somebody asks for it. */
enum exports_state exports_ask(uint64_t number);
/* And for one for which exports_ask has said AWAY; `gives_up`: it waits no more. */
enum exports_state exports_ask_again(uint64_t number, bool gives_up);
/* An importer has it no more; or it is not known whether it has, so that it stays. */
void exports_returned(uint64_t number);
void exports_keep(uint64_t number);
/* What nobody has had for this time moves again. */
void exports_let_go(uint64_t idle_ns);
/* Somebody waits for one that is not on its device alone. */
bool exports_awaited(void);
/* Shares again what is waited for; the calling thread is inside the gate, so all is there. */
void exports_share_again(void);

/* Tells the agent and the mover what has changed by any of it. */
void exports_tell(void);

enum exports_answer {
    EXPORTS_SENT, /* `first` is the next piece; all are sent when it is 0 again */
    EXPORTS_WAIT, /* the peer has no room */
    EXPORTS_GONE, /* the peer, or the block */
};
/* Sends what fits into one packet, without waiting. */
enum exports_answer exports_send(int socket, uint64_t number, uint32_t *first);

void exports_after_fork(void);
