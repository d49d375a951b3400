/* What is physical: the memory that this process has in pieces, each of which is on the device or
 * in host memory. Where a piece is mapped stands in pages.h.
 *
 * LOCK_MEMORY guards all of it; nothing of the driver is called under it. A chunk that is about to
 * be moved or freed is claimed first, by its state. While it is claimed, `handle`, `host` and what
 * is `there` belong to the claimer alone, who writes them without the lock; its size never changes.
 * Functions that end in _locked are called with the lock held, all others without it. */
#pragma once

#include <stddef.h>
#include <sys/queue.h>

#include "memory/pages.h"

#define CHUNK_GRANULE PAGE_BYTES
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
    CHUNK_PARKED,   /* not mapped; what it holds is at `host`, or with the driver (managed) */
    CHUNK_COMING,   /* claimed by the mover: being mapped and copied in */
    CHUNK_BACK,     /* mapped, and `host` has the same: until all is back, or ahead of need */
    CHUNK_CHANGING, /* claimed for another change; counts as what it was */
    CHUNK_FREEING,  /* claimed by cuMemFree or the end of its context */
};

struct chunk {
    struct mapping *mappings;  /* where it is mapped while it is on the device; NULL: nowhere */
    struct physical *physical; /* of which it is a part (physical.h); NULL: of a block */
    uint64_t managed_at;       /* where it is, of managed memory (managed.h); 0: of other */
    uint64_t bytes;            /* a multiple of CHUNK_GRANULE; of managed memory any number */
    uint64_t handle;           /* CUmemGenericAllocationHandle, or of managed memory its address; 0:
                                  not on the device */
    void *host;                /* host memory (host_arena.h) while it has a copy there; else NULL,
                                  also of what is away and was empty when it left */
    void *context; /* a block's: in which it was allocated and with which it goes; of other memory:
                      in which it was copied last, or NULL */
    uint64_t
        stays_until_ns; /* its last copy out has failed, so it is not moved before; 0: not so */
    TAILQ_ENTRY(chunk) next; /* among those of its device that can be claimed for the same */
    int32_t device;          /* ordinal */
    uint16_t usage;          /* of a pool: as in CUmemAllocationProp.allocFlags; of a block: 0 */
    uint8_t state;           /* enum chunk_state */
    uint8_t was;             /* likewise, before it was claimed */
    uint8_t failures;        /* copies out that failed, in a row */
    bool fixed;              /* never moved any more */
    bool shared;             /* nor as long as another process has it */
    bool comes_by_faults;    /* managed memory that the program wants elsewhere than here, */
    bool has_pages;          /* and such that was on the host, where the driver keeps its pages */
    bool counts_as_off;      /* in the sums */
    bool copied;             /* BACK: it never left, and was copied to the host ahead of need */
    bool can_stay;           /* LEAVING: so far it is only being copied */
    bool is_empty;           /* it was never mapped, so nothing is copied when it moves */
};

/* What there is on one device. A FREEING chunk counts as what it was until it is removed, but as
 * movable no more. A PARKED one whose device memory the driver would not take back is still there,
 * and cannot be moved. */
struct chunk_sums {
    uint64_t bytes_resident; /* RESIDENT, LEAVING, COMING, BACK: mapped, or about to be */
    uint64_t bytes_movable;  /* of those, what could be parked */
    uint64_t bytes_managed;  /* of those, what needs host memory of the driver's, not of ours */
    uint64_t bytes_parked;
    uint64_t bytes_kept;   /* of those, managed memory, whose pages the driver may keep there */
    uint64_t bytes_next;   /* of those, the one that comes next; 0: that one's is still there */
    uint64_t bytes_copied; /* of the movable ones, what is BACK */
    uint64_t bytes_back; /* of the resident ones, what needs no further host memory to leave: it is
                            BACK, or LEAVING already */
    uint32_t moving;     /* LEAVING or COMING */
    /* So many can be claimed: as a loop ends by these, it ends when there is nothing to claim. */
    uint32_t to_leave, to_come, to_take_back;
    uint32_t to_copy; /* of those to leave, what is copied to host memory of ours */
    uint32_t copies;  /* BACK ones, fixed or not: all that have a host copy to confirm */
    uint32_t copied;  /* of these, copied ahead of need */
};

/* A chunk of a new block, RESIDENT, on a device below REGISTRY_DEVICES_MAX; and its end. */
void chunks_enter_locked(struct chunk *chunk);
void chunks_leave_locked(struct chunk *chunk);

/* Claims a chunk for freeing, and waits while it is being moved. Each chunk has one who frees it,
 * so one that is FREEING already was given up by the mover and is claimed like the others. False:
 * the process ends. */
bool chunks_claim_for_free(struct chunk *chunk);
/* Claims a chunk for a change of where it is mapped, and waits while it is moved or changed; such a
 * claim is its thread's only one. chunks_change_ended_locked ends it: the chunk is what it was. */
bool chunks_claim_for_change(struct chunk *chunk);
void chunks_change_ended_locked(struct chunk *chunk);
/* Waits for the end of any claim; with LOCK_MEMORY held, which it gives away meanwhile. False: the
 * process ends. For what is not a chunk's: chunks_ended_locked wakes such waiters. */
bool chunks_wait_locked(void);
void chunks_ended_locked(void);
/* From now on it stays where it is. */
void chunks_fix_locked(struct chunk *chunk);
/* The same until it is shared no more. */
void chunks_share_locked(struct chunk *chunk, bool shared);
/* Likewise all that is there of this context, and of none at all on this device (-1: on no device).
 */
void chunks_fix_context(const void *context, int device);

/* Claims the next chunk of the device for parking (RESIDENT, not fixed: becomes LEAVING), for
 * restoring (PARKED: becomes COMING) or for being unmapped again (BACK: becomes LEAVING, keeps its
 * `host`). NULL: there is none. */
struct chunk *chunks_claim_leaving_locked(int device);
struct chunk *chunks_claim_coming_locked(int device);
struct chunk *chunks_claim_back_locked(int device);
/* Claims for a copy ahead of need (RESIDENT, not managed, not fixed: becomes LEAVING). */
struct chunk *chunks_claim_copying_locked(int device);
/* One that was claimed for either is taken off its device now. False: it has become fixed since. */
bool chunks_goes(struct chunk *chunk);
/* Claims this one, RESIDENT or BACK, to be made anew (wholes.h): LEAVING. */
void chunks_claim_locked(struct chunk *chunk);
/* Ends a claim: the chunk is now in `state`. One that is as it was before is claimed first again.
 */
void chunks_settle(struct chunk *chunk, enum chunk_state state);
/* Ends a claim for a copy ahead of need: the chunk is BACK, and was never away. */
void chunks_settle_copied(struct chunk *chunk);
/* Ends a claim for parking whose copy has failed: the chunk is RESIDENT, and stays for a while; for
 * good where the copy will never succeed. */
void chunks_settle_failed(struct chunk *chunk, uint64_t now_ns);
void chunks_settle_fixed(struct chunk *chunk);
/* Lets those leave again that have stayed long enough; whether there were any. */
bool chunks_let_go(uint64_t now_ns);
/* When to come again for that; UINT64_MAX: none stays. */
uint64_t chunks_next_let_go_ns(void);
/* A BACK chunk becomes RESIDENT. Returns its host memory, which the caller gives back. */
void *chunks_confirm_locked(struct chunk *chunk);
/* All BACK chunks of the device become RESIDENT, or those alone that were copied ahead of need:
 * calls `give` with the host memory of each, without the lock. */
void chunks_confirm_back(int device, bool copied_alone, void (*give)(void *host, uint64_t bytes));

/* Where what lies at an address is whole: in the host memory given, or on the device where that is
 * NULL; and for how many bytes from there on that is so. For the end of the process, when no chunk
 * moves any more: one that was leaving is still mapped, one that was coming is not all there yet.
 * False: no chunk is there. */
bool chunks_source(uint64_t address, const void **host, uint64_t *bytes);

struct chunk_sums chunks_sums_of(int device);
struct chunk_sums chunks_sums_locked(int device);
/* The context of some chunk that could be parked; NULL: there is none, or none is known. */
void *chunks_movable_context(void);

/* All of its memory is on the device, and is not being moved. */
bool chunks_is_here_locked(const struct chunk *chunk);
/* Nor has any of it been taken off where it is LEAVING: if it becomes fixed now, it stays. */
bool chunks_can_stay_locked(const struct chunk *chunk);
/* The mover could claim it now: it is here, and nothing keeps it there. */
bool chunks_may_leave_locked(const struct chunk *chunk);
/* No chunk of any device is parked or being moved. */
bool chunks_all_here(void);
/* Nor has any a host copy that was not confirmed: the gate may open, and a restore is at its end.
 */
bool chunks_all_confirmed(void);
bool chunks_all_confirmed_locked(void);

/* Calls `look` for each chunk of the device that could leave now, in the order in which they would,
 * until it answers false; under the lock. Whether it never did. */
bool chunks_visit_leaving(int device, bool (*look)(const struct chunk *chunk, void *argument),
                          void *argument);

/* The process ends, and the mover with it: nobody waits for a claim any more. */
void chunks_stop(void);
void chunks_after_fork(void);
