/* Blocks of other processes' device memory that are mapped here, and the allocations in them that
 * the program has opened. LOCK_IPC guards the tables. Results are CUresult, as int. */
#pragma once

#include "base/descriptor.h"
#include "memory/blocks.h"
#include "sharing/ipc_handle.h"

/* A block of an exporter, mapped for one context. */
struct import {
    uint64_t server, block; /* what it is there */
    void *context;
    uint64_t generation; /* of the context */
    uint64_t address;    /* where it is here */
    uint64_t bytes;
    int32_t device;               /* ordinal of the device that has it, or else of the context's */
    uint32_t openings;            /* allocations that are open in it; 0: to be unmapped */
    struct descriptor connection; /* to the exporter, while it is mapped */
    bool is_lost;                 /* some of it could not be unmapped */
};

/* Opens once more what the context has mapped already. */
bool imports_reopen(const struct ipc_handle *handle, uint64_t generation, uint64_t *address);
enum imports_answer {
    IMPORTS_ADDED,
    IMPORTS_THERE,   /* opened in a mapping that another thread has made meanwhile */
    IMPORTS_NO_ROOM, /* not opened: no host memory */
};

/* Enters a mapping and opens the handle's allocation in it. Unless it is ADDED, the mapping is the
 * caller's to take down. */
enum imports_answer imports_add(const struct import *mapped, const struct ipc_handle *handle,
                                uint64_t *address);
/* Closes what was opened at this address, once. False: nothing was. */
bool imports_close(uint64_t address);
/* Takes a mapping out of the table: any of this context, or (0) one in which nothing is open. */
bool imports_take(uint64_t generation, struct import *taken);
/* It cannot be unmapped yet. False: no host memory. */
bool imports_put_back(const struct import *unused);

/* The opened allocation in which the address lies; whether it lies in such memory at all. */
bool imports_find(uint64_t address, struct allocated *found);
bool imports_cover(uint64_t address);
/* What lies there is about to be given to others, unseen: the exporter is told. False: it cannot
 * be. */
bool imports_keep(uint64_t address);

void imports_after_fork(void);
