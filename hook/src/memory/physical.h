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
    uint8_t whole;                  /* enum physical_whole: whether its parts are to become one */
    bool changes;                   /* they become one: who wants to hold it waits */
    bool unused;                    /* nobody has it, and somebody is to give it back */
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
    bool closing;                         /* a thread is unmapping it: nobody else finds it */
    uint8_t access[REGISTRY_DEVICES_MAX]; /* CUmemAccess_flags of each device */
    TAILQ_ENTRY(view) next;               /* among all */
    struct mapping pieces[];              /* one a part */
};

/* A handle's memory with nothing in it, in parts of at most CHUNK_BYTES_MAX (fixed: in one); NULL:
 * no host memory. */
struct physical *physical_new(const CUmemAllocationProp *properties, uint64_t bytes, bool fixed);
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

/* From now on it stays where it is. False: it is away, or about to leave. */
bool physical_fix(struct physical *physical, bool *is_news);
/* The same for all that was made for RDMA and is on its device. */
bool physical_fix_for_rdma(void);
/* A context has ended: copies are made in another one of the device (NULL: there is none). */
void physical_context_ended(const void *context, int device, void *other);

/* A view that the driver has mapped, of what is held: that is the view's from now on. Where the
 * memory moves, which a call that passes a shut gate may meet, ILLEGAL_STATE: the mover has
 * unmapped what it knows of. */
CUresult physical_enter_view(struct view *view);
/* The claim of the view's piece for a change ends, and the mover may have to look at its chunk.
 * Where the piece is not mapped any more, it has no chunk then, and with the last piece the view is
 * gone. True as with physical_drop, of what the view has held. */
bool physical_leave_piece(struct mapping *piece, bool is_unmapped);
/* What is known of an address in a view. */
struct physical_place {
    uint64_t address, bytes; /* of the view */
    uint64_t id;             /* of the memory */
    void *context;           /* in which it was copied last, or NULL */
    bool is_here;            /* all of it */
    uint8_t access[REGISTRY_DEVICES_MAX];
};
/* False: it lies in none. */
bool physical_look(uint64_t address, struct physical_place *place);
/* Some view lies in the range. */
bool physical_is_in(uint64_t address, uint64_t bytes);
/* The same for a range that ought to be one of whole views. */
enum physical_range {
    PHYSICAL_NONE,
    PHYSICAL_WHOLE, /* views, and perhaps what is not ours between them */
    PHYSICAL_CUT,   /* a view lies partly within it */
};
enum physical_range physical_range(uint64_t address, uint64_t bytes);
/* Likewise; `*view` is the first one of a WHOLE range, for the thread that is about to unmap it, or
 * NULL. */
enum physical_range physical_close_view(uint64_t address, uint64_t bytes, struct view **view);
/* That could not be. */
void physical_reopen_view(struct view *view);
/* Notes the access of a device that the driver has given from there on, as far as views lie side by
 * side. Returns where they end, at most `end`. */
uint64_t physical_note_access(uint64_t address, uint64_t end, int device, uint8_t flags);

/* Whoever is given a handle of the driver's needs the parts to be one allocation of its (wholes.h).
 */
enum physical_whole {
    WHOLE_NOT_ASKED,
    WHOLE_WANTED,  /* somebody waits for it */
    WHOLE_MADE,    /* it is one part */
    WHOLE_GONE,    /* there is no such memory any more */
    WHOLE_NO_HOST, /* no host memory for its contents meanwhile; from here on all is as it was */
    WHOLE_NO_ROOM, /* the driver had no memory for it in one */
    WHOLE_STAYS,   /* it cannot be moved */
    WHOLE_BUSY,    /* work that may use it does not end */
};
/* How it stands with this one; `wants`: it is wanted from now on. */
enum physical_whole physical_whole(uint64_t number, bool wants);
/* Nobody waits for this one any more, also in the middle of it; or (0) for none that is not under
 * way, for this reason. Whether any was wanted. */
bool physical_whole_refuse(uint64_t number, enum physical_whole why);
/* Some is wanted. */
bool physical_whole_wanted(void);
/* The next of those that are wanted, with all its parts claimed; nobody maps, unmaps or holds it
 * until physical_whole_end. NULL: there is none; `*later`: but for one that a call still uses. */
struct physical *physical_whole_begin_locked(bool *later);
/* The first of its views, or the one after it. */
struct view *physical_next_view(const struct physical *physical, const struct view *after);
/* It is one part now, whose memory this is, mapped where it was, and stays so. */
void physical_whole_made(struct physical *physical, uint64_t handle);
/* That is over, with this answer, or (WANTED) for now. */
void physical_whole_end(struct physical *physical, enum physical_whole answer);
/* What nobody has had any more at such an end, to be given back as with physical_drop. NULL: there
 * is none. */
struct physical *physical_take_unused(void);

/* Whether any of it all is not on its device. */
bool physical_any_away(void);

void physical_after_fork(void);
