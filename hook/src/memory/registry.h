/* What this process has on its devices, in sums, and a record of each allocation that the driver
 * has made, all of which is fixed. The blocks that we make ourselves (blocks.h) are in the sums
 * alone.
 *
 * LOCK_MEMORY guards all of it: nothing is called while it is held but the C library's allocator. A
 * forked child starts with an empty registry, as its parent's device memory is not its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* More devices than a host has; memory on a device beyond is not counted. */
#define REGISTRY_DEVICES_MAX 64

/* What an allocation's key is. Keys of different spaces may be equal. */
enum registry_space {
    REGISTRY_ADDRESS, /* a device address, of an allocation that the driver made */
    REGISTRY_ARRAY,   /* a CUarray or CUmipmappedArray */
    REGISTRY_POOL,    /* a CUmemoryPool: no bytes, tells the device */
    REGISTRY_KEPT,    /* likewise: what it keeps beyond what is allocated from it (pools.h) */
};

/* What kind of memory it is, as people are told (docs/memory.md). The first four may move. */
enum registry_kind {
    KIND_PLAIN,        /* cuMemAlloc */
    KIND_MAPPED,       /* cuMemCreate */
    KIND_POOLED,       /* stream-ordered */
    KIND_PREFETCHED,   /* managed memory that moves (managed.h) */
    KIND_DRIVER_POOLS, /* of the driver's own pools */
    KIND_GRAPHS,
    KIND_MANAGED, /* what stays of it */
    KIND_ARRAYS,
    KIND_OTHER, /* the driver's own for other reasons, and what other processes have given */
    REGISTRY_KINDS,
};

struct allocation {
    uint64_t key;
    uint64_t bytes;   /* counted for `device` */
    uint64_t context; /* generation of that in which it was made and with which it goes; or 0 */
    int32_t device;   /* ordinal */
    uint8_t space;    /* enum registry_space */
    uint8_t kind;     /* enum registry_kind */
};

/* What is allocated on a device. */
struct registry_sums {
    uint64_t bytes_allocated;
    uint64_t bytes_claimed; /* allocations that are on their way through the driver */
    uint64_t bytes_fixed;
    uint64_t bytes_of[REGISTRY_KINDS];
    uint64_t bytes_stopped; /* of the kinds that may move: fixed all the same */
};

/* Takes `bytes` of what is left of `limit_bytes` (UINT64_MAX: no limit) on the device, for an
 * allocation about to be made. False, and nothing taken, when that is too little. */
bool registry_claim(int device, uint64_t bytes, uint64_t limit_bytes);
/* Records an allocation; one of the same space and key is replaced. False: no host memory left,
 * the allocation stays unknown. */
bool registry_add(const struct allocation *allocation);
/* Likewise, and ends the claim that it was made with: nobody sees it counted twice. */
bool registry_keep(const struct allocation *allocation, uint64_t bytes_claimed);
/* Removes and returns; false when it is unknown. */
bool registry_take(enum registry_space space, uint64_t key, struct allocation *taken);
/* Copies; false when it is unknown. */
bool registry_find(enum registry_space space, uint64_t key, struct allocation *found);
/* Forgets everything that a context takes with it. */
void registry_drop_context(uint64_t context);

struct registry_sums registry_sums_of(int device);
/* Of these sums, without a lock. */
uint64_t registry_bytes_allocated(int device);

/* The functions that end in _locked are called with LOCK_MEMORY held. */
/* What there is without a record counts (`times` 1) or does no more (-1), and
 * a claim ends. */
void registry_count_locked(int device, enum registry_kind kind, uint64_t bytes,
                           uint64_t bytes_fixed, int times);
void registry_unclaim_locked(int device, uint64_t bytes);
struct registry_sums registry_sums_locked(int device);

void registry_after_fork(void);
