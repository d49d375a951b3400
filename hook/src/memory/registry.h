/* The allocations of this process: what the tenant's share is made of, and later what can move.
 *
 * LOCK_REGISTRY guards all of it, the innermost lock: nothing is called while it is held but the C
 * library's allocator. A forked child starts with an empty registry, as its parent's device memory
 * is not its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* More devices than a host has; memory on a device beyond is not counted. */
#define REGISTRY_DEVICES_MAX 64

/* What an allocation's key is. Keys of different spaces may be equal. */
enum registry_space {
    REGISTRY_ADDRESS,  /* a device address, of an allocation that the driver made */
    REGISTRY_BLOCK,    /* a device address, of memory that backing.c has mapped */
    REGISTRY_ARRAY,    /* a CUarray or CUmipmappedArray */
    REGISTRY_POOL,     /* a CUmemoryPool: no bytes, tells the device */
    REGISTRY_KEPT,     /* likewise: what it keeps beyond what is allocated from it (pools.h) */
    REGISTRY_PHYSICAL, /* a number of physical.c: memory of cuMemCreate */
    REGISTRY_HANDLE,   /* a CUmemGenericAllocationHandle of such memory: no bytes */
    REGISTRY_MAPPING,  /* an address where such memory is mapped: no bytes counted */
};

enum allocation_kind {
    ALLOCATION_PLAIN,
    ALLOCATION_BLOCK, /* movable, unless it is marked fixed */
    ALLOCATION_MANAGED,
    ALLOCATION_ASYNC,    /* stream-ordered */
    ALLOCATION_GRAPH,    /* made in a capture: belongs to the graph; fixed */
    ALLOCATION_ARRAY,    /* fixed */
    ALLOCATION_PHYSICAL, /* cuMemCreate */
    ALLOCATION_IMPORTED, /* another process's memory: no bytes here */
    ALLOCATION_NONE,     /* a record that is no memory */
};

struct allocation {
    uint64_t key;
    uint64_t bytes;      /* counted for `device` */
    uint64_t link;       /* HANDLE, MAPPING: key of their PHYSICAL */
    uint64_t span_bytes; /* MAPPING: how many bytes are mapped */
    uint64_t context;    /* generation of that in which it was made and with which it goes; or 0 */
    uint32_t references; /* PHYSICAL, HANDLE: how often it is held */
    int32_t device;      /* ordinal */
    uint8_t space;       /* enum registry_space */
    uint8_t kind;        /* enum allocation_kind */
    bool fixed;          /* cannot be moved */
};

/* What is allocated on a device. */
struct registry_sums {
    uint64_t bytes_allocated;
    uint64_t bytes_claimed; /* allocations that are on their way through the driver */
    uint64_t bytes_fixed;
};

/* Takes `bytes` of what is left of `limit_bytes` (UINT64_MAX: no limit) on the device, for an
 * allocation about to be made. False, and nothing taken, when that is too little. */
bool registry_claim(int device, uint64_t bytes, uint64_t limit_bytes);
/* Gives a claim back: the allocation failed, or is now added with its true size. */
void registry_unclaim(int device, uint64_t bytes);

/* Records an allocation; one of the same space and key is replaced. False: no host memory left,
 * the allocation stays unknown. */
bool registry_add(const struct allocation *allocation);
/* Likewise, and ends the claim that it was made with: nobody sees it counted twice. */
bool registry_keep(const struct allocation *allocation, uint64_t bytes_claimed);
/* Removes and returns; false when it is unknown. */
bool registry_take(enum registry_space space, uint64_t key, struct allocation *taken);
/* Copies; false when it is unknown. */
bool registry_find(enum registry_space space, uint64_t key, struct allocation *found);
/* Holds a record once more, and returns how often it is held now. An unknown one is added as it is
 * given, with one reference; without `fresh` it stays unknown, and 0 is returned. */
uint32_t registry_retain(enum registry_space space, uint64_t key, const struct allocation *fresh);
/* Holds it once less, and returns how often it is still held. At 0 the record is removed and copied
 * to `removed`. An unknown record answers UINT32_MAX. */
uint32_t registry_release(enum registry_space space, uint64_t key, struct allocation *removed);
/* Marks an allocation as one that cannot be moved; returns whether that was new. */
bool registry_mark_fixed(enum registry_space space, uint64_t key, int *device);
/* Forgets everything that a context takes with it. */
void registry_drop_context(uint64_t context);

struct registry_sums registry_sums_of(int device);
