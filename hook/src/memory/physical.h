/* Memory that the program has made itself (cuMemCreate): what its handle stands for, in parts that
 * move one by one, and where the program has mapped it. The handle is a number of ours, because the
 * driver's own changes with each move. It lives until its last handle is released and its last
 * mapping is gone, as with the driver.
 *
 * LOCK_MEMORY guards the tables, and nothing of the driver is called under it. */
#pragma once

#include "base/driver.h"
#include "memory/chunks.h"
#include "memory/registry.h"

struct physical {
    uint64_t number; /* the program's handle; never used twice */
    uint64_t id;     /* that the driver would tell of its addresses; as of blocks */
    uint64_t bytes;
    CUmemAllocationProp properties; /* as it was asked for */
    uint32_t handles;               /* how often the program holds it */
    uint32_t holders;               /* views, and calls that are on their way with it */
    int32_t device;                 /* ordinal */
    bool fixed;                     /* for good, as a whole */
    LIST_ENTRY(physical) next;      /* among all */
    size_t part_count;
    struct part {
        struct chunk chunk; /* first: it is found by that */
        struct mapping own; /* where it is copied while the program has no address for that */
    } parts[];
};

/* What the program has mapped as one. */
struct view {
    uint64_t address;
    struct physical *physical;            /* held */
    uint8_t access[REGISTRY_DEVICES_MAX]; /* CUmemAccess_flags of each device */
    TAILQ_ENTRY(view) next;               /* among all */
    struct mapping pieces[];              /* one a part */
};

/* A handle's memory with nothing in it, in parts of at most CHUNK_BYTES_MAX (fixed: in one); NULL:
 * no host memory. */
struct physical *physical_new(const CUmemAllocationProp *properties, uint64_t bytes, bool fixed,
                              void *context);
/* Its parts are on the device, and were claimed in the registry: it is counted, the claim ends, and
 * the program holds it once, by this number. False: no host memory. */
bool physical_enter(struct physical *physical, uint64_t *number);

/* The number is one of ours, now or once. */
bool physical_is_number(uint64_t number);

/* Both hold it for a call; NULL: no such memory of ours. */
struct physical *physical_hold(uint64_t number);
struct physical *physical_hold_at(uint64_t address);
/* True: nobody has it any more, and its memory is to be given back; physical_remove follows. */
bool physical_drop(struct physical *physical);
void physical_remove(struct physical *physical);

/* The program's own counting; it retains what is held. False: it does not hold the number. Else
 * `*unused` is what is to be given back, as with physical_drop, or NULL. */
void physical_retain(struct physical *physical);
bool physical_release(uint64_t number, struct physical **unused);

/* From now on it stays where it is. True: that is news. */
bool physical_fix(struct physical *physical);
/* The same for all that was made for RDMA and is on its device. */
bool physical_fix_for_rdma(void);
/* A context has ended: copies are made in another one of the device (NULL: there is none). */
void physical_context_ended(const void *context, int device, void *other);

/* A view that the driver has mapped, of what is held: that is the view's from now on. False: no
 * host memory. */
bool physical_enter_view(struct view *view);
/* The claim of the view's piece for a change ends, and the mover may have to look at its chunk;
 * where the piece is not mapped any more, it has no chunk then. */
void physical_leave_piece(struct mapping *piece, bool is_unmapped);
/* And with all of them gone the view ends. True as with physical_drop, of what it has held. */
bool physical_leave_view(struct view *view);
/* The view in which an address lies; NULL: none. It stays while no other thread unmaps it, which
 * would be the program's mistake. */
struct view *physical_view_at(uint64_t address);
/* Some view lies in the range. */
bool physical_is_in(uint64_t address, uint64_t bytes);
/* The first one there. `*cut`: some view lies partly within the range. */
struct view *physical_next_view(uint64_t address, uint64_t bytes, bool *cut);
static inline uint64_t physical_view_end(const struct view *view) {
    return view->address + view->physical->bytes;
}
/* Notes the access of a device that the driver has given from there on, as far as views lie side by
 * side. Returns where they end, at most `end`. */
uint64_t physical_note_access(uint64_t address, uint64_t end, int device, uint8_t flags);

/* Whether all of what lies at the address is on the device; and whether anything is not. */
bool physical_is_here(uint64_t address);
bool physical_any_away(void);

void physical_after_fork(void);
