/* The movable memory of this process: allocations of cuMemAlloc and cuMemAllocPitch, each in an
 * address range of its own, cut into chunks that are on the device or in host memory.
 *
 * LOCK_CHUNKS guards all of it; nothing of the driver is called under it. A chunk that is about to
 * be moved or freed is claimed first: its state says so, and the functions here wait for the end of
 * a claim where they want the chunk too. Its address and size never change; what `handle` and
 * `host` name belongs to the claimer while it is claimed. */
#ifndef GPUSHARE_CHUNKS_H
#define GPUSHARE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define CHUNK_GRANULE ((uint64_t)2 << 20)
/* While another process copies, giving access to a mapping waits for a time slice of the copy
 * engines, 1 ms on an H200, whatever its size: smaller chunks would come in more slowly than they
 * go out. Larger ones are slower to copy into. */
#define CHUNK_BYTES_MAX ((uint64_t)64 << 20)
/* A chunk that could not be copied out stays for so long, twice as long after each further failure,
 * and after so many in a row for good: a device on which no copy succeeds is soon left alone. */
#define CHUNK_STAYS_NS ((uint64_t)1000000000)
#define CHUNK_FAILURES_MAX 8

enum chunk_state {
    CHUNK_RESIDENT, /* mapped; what it holds is on the device alone */
    CHUNK_LEAVING,  /* claimed by the mover: being copied out, then unmapped */
    CHUNK_PARKED,   /* not mapped; what it holds is at `host` */
    CHUNK_COMING,   /* claimed by the mover: being mapped and copied in */
    CHUNK_BACK,     /* mapped and copied in; `host` still has the same until all is back */
    CHUNK_FREEING,  /* claimed by cuMemFree or the end of its context */
    CHUNK_HELD,     /* claimed for one call of the driver; mapped all the time */
};

struct chunk {
    uint64_t address;
    uint64_t bytes;  /* a multiple of CHUNK_GRANULE */
    uint64_t handle; /* CUmemGenericAllocationHandle while mapped; else 0 */
    void *host;    /* registered host memory (host_arena.h) while it has a copy there; else NULL */
    void *context; /* the context that it was allocated in, and with which it goes */
    uint64_t
        stays_until_ns; /* its last copy out has failed, so it is not moved before; 0: not so */
    int32_t device;     /* ordinal */
    uint8_t state;      /* enum chunk_state */
    uint8_t failures;   /* copies out that failed, in a row */
    bool fixed;         /* never moved any more */
    /* `handle` is device memory that is mapped nowhere: the driver would not take it back. */
    bool unmapped;
};

/* What there is on one device. A FREEING chunk counts as what it was until it is removed, but as
 * movable no more. A PARKED one whose device memory the driver would not take back is still there,
 * and cannot be moved. */
struct chunk_sums {
    uint64_t bytes_resident; /* RESIDENT, LEAVING, COMING, BACK, HELD: mapped, or about to be */
    uint64_t bytes_movable;  /* of those, what could be parked */
    uint64_t bytes_parked;
    uint64_t bytes_to_come; /* of those, what can come back; a FREEING one cannot */
    uint32_t moving;        /* LEAVING or COMING */
    /* So many can be claimed, or are held for a moment and can be then: as a loop ends by these,
     * it ends when there is nothing to claim. */
    uint32_t to_leave, to_come, to_take_back;
    uint32_t
        copies; /* BACK ones, held or not, fixed or not: all that have a host copy to confirm */
};

/* Adds the chunks of a new allocation, one behind the other, all RESIDENT, on a device below
 * REGISTRY_DEVICES_MAX. False: no host memory for the table. */
bool chunks_add(const struct chunk *chunks, size_t count);
/* Claims all chunks in [address, address + bytes) for freeing, waiting for those that are being
 * moved, and copies them out. They stay in the table, FREEING, until chunks_remove. Each
 * address has one who frees it (blocks.h), so one that is FREEING already was given up by the mover
 * and is claimed like the others. */
size_t chunks_claim_for_free(uint64_t address, uint64_t bytes, struct chunk *out, size_t max);
void chunks_remove(uint64_t address, uint64_t bytes);
/* From now on the chunks there stay where they are. False, and nothing changed: some are not on the
 * device, or are being moved. */
bool chunks_fix(uint64_t address, uint64_t bytes);

/* Claims the next chunk of the device for parking (RESIDENT, not fixed: becomes LEAVING) or for
 * restoring (PARKED: becomes COMING). Copies it out. False: there is none. */
bool chunks_claim_leaving(int device, struct chunk *out);
bool chunks_claim_coming(int device, struct chunk *out);
/* Claims the next mapped chunk of the device from `*from` on for a call of the driver, waiting for
 * those that are being moved, and moves `*from` behind it. It is settled back to `*was`. False:
 * there is no more. */
bool chunks_hold_next(int device, uint64_t *from, struct chunk *out, enum chunk_state *was);
/* Ends a claim: the chunk at that address is now in `state`, with this handle and host memory. */
void chunks_settle(uint64_t address, enum chunk_state state, uint64_t handle, void *host);
/* Ends the mover's claim of one that is off the device, or nearly: PARKED, or FREEING where nobody
 * can restore it. All that the claimer's copy says of its memory holds from now on. */
void chunks_settle_away(const struct chunk *chunk, enum chunk_state state);
/* Ends a claim for parking whose copy has failed: the chunk is RESIDENT, and stays for a while. */
void chunks_settle_failed(uint64_t address, uint64_t handle, uint64_t now_ns);
/* Lets those leave again that have stayed long enough; whether there were any. */
bool chunks_let_go(uint64_t now_ns);
/* When to come again for that; UINT64_MAX: none stays. */
uint64_t chunks_next_let_go_ns(void);
/* All BACK chunks of the device become RESIDENT, those too that are held until then: calls `give`
 * with the host memory of each. */
void chunks_confirm_back(int device, void (*give)(void *host, uint64_t bytes));
/* Claims a BACK chunk for being unmapped again (becomes LEAVING, keeps its `host`). Waits where all
 * that are left may be held. */
bool chunks_claim_back(int device, struct chunk *out);

/* Where what lies at an address is whole: in the host memory given, or on the device where that is
 * NULL; and for how many bytes from there on that is so. For the end of the process, when no chunk
 * moves any more: one that was leaving is still mapped, one that was coming is not all there yet.
 * False: no chunk of ours is there. */
bool chunks_source(uint64_t address, const void **host, uint64_t *bytes);

struct chunk_sums chunks_sums_of(int device);
/* The context of some chunk that could be parked; NULL: there is none. */
void *chunks_movable_context(void);

/* There are chunks, wherever they are. */
bool chunks_are_there(void);
/* No chunk of any device is parked or being moved. */
bool chunks_all_here(void);
/* Nor has any a host copy that was not confirmed: the gate may open. */
bool chunks_all_confirmed(void);

/* Calls `look` for each chunk of a device under the lock; it must not call anything of this file.
 */
void chunks_visit(int device, void (*look)(const struct chunk *chunk, void *argument),
                  void *argument);

/* The process ends, and the mover with it: nobody waits for a claim any more. */
void chunks_stop(void);
void chunks_after_fork(void);

#pragma GCC visibility pop
#endif
