/* The pools that are ours (decisions/0020): their addresses, and the memory there, in segments each
 * of which is one chunk. A segment belongs to its device, not to a context. LOCK_MEMORY guards all
 * of it, and nothing of the driver is called under it. */
#pragma once

#include "memory/blocks.h"
#include "memory/registry.h"
#include "memory/space.h"

/* Numbers of created streams are smaller: the default stream of a thread. */
#define POOLED_FIRST_THREAD ((uint64_t)1 << 62)

struct pool {
    void *handle;            /* the driver's; NULL: destroyed, and gone with its last memory */
    void *name;              /* the same, also then */
    int32_t device;          /* ordinal */
    uint32_t holders;        /* calls on their way */
    struct space space;      /* of no bytes before the first allocation */
    uint64_t bytes_max;      /* as the program has limited it; 0: not */
    uint16_t usage;          /* of its memory, as in CUmemAllocationProp.allocFlags */
    uint64_t bytes_claimed;  /* being made for it */
    uint64_t threshold;      /* what is kept when somebody has waited */
    bool takes_what_is_over; /* though nobody has waited for that (REUSE_ALLOW_OPPORTUNISTIC) */
    bool follows;            /* other streams' frees (REUSE_ALLOW_INTERNAL_DEPENDENCIES) */
    uint64_t bytes_reserved, most_reserved, most_used;
    uint32_t lost;                        /* segments */
    uint8_t access[REGISTRY_DEVICES_MAX]; /* CUmemAccess_flags of each device */
    uint32_t access_changes;
    LIST_ENTRY(pool) next;
    LIST_HEAD(, segment) segments;
};

struct segment {
    struct mapping mapping;
    struct chunk chunk;
    struct pool *pool;
    bool fixed;
    bool lost; /* what was there cannot come back: nobody is given its addresses */
    LIST_ENTRY(segment) next;
};

/* The pool becomes ours. NULL: no host memory. Held. */
struct pool *pooled_add(const struct pool *wanted);
/* Both hold it; NULL: it is not ours. */
struct pool *pooled_hold(const void *handle);
/* Ends that. Not NULL: the pool is gone, its addresses are to be given back, and it is freed by
 * the caller. */
struct pool *pooled_drop(struct pool *pool);
/* The driver is about to destroy it: nobody finds it any more; held. It may not have been so. */
struct pool *pooled_leaves(const void *handle);
void pooled_stays(struct pool *pool, void *handle);
/* It has not been freed. */
bool pooled_is_there(const struct pool *pool);
/* The next one behind `pool` (NULL: the first), held. */
struct pool *pooled_next(const struct pool *pool);

/* It has addresses from now on. False: no host memory, or it had some already. */
bool pooled_open(struct pool *pool, uint64_t address, uint64_t bytes);
bool pooled_is_open(struct pool *pool);

/* What programs set and ask (CU_MEMPOOL_ATTR_…). */
void pooled_set_threshold(struct pool *pool, uint64_t bytes);
void pooled_set_reuse(bool *rule, bool allowed);
void pooled_reset_marks(struct pool *pool, bool reserved, bool used);
struct pooled_numbers {
    uint64_t reserved, most_reserved, used, most_used;
};
struct pooled_numbers pooled_numbers(struct pool *pool);
/* What the pool keeps when somebody has waited. */
uint64_t pooled_keeps(struct pool *pool);
/* Who may use its memory; and a number that each such change counts up. */
void pooled_set_access(struct pool *pool, int device, uint8_t flags);
uint32_t pooled_access_changes(struct pool *pool);

/* An allocation where there is memory; 0: there is none. */
uint64_t pooled_take(struct pool *pool, uint64_t bytes, struct stream_key key);
/* What would be missing for it; UINT64_MAX: it cannot be. */
uint64_t pooled_missing(struct pool *pool, uint64_t bytes, struct stream_key key);
/* As space_claim. Its missing memory becomes the pool's with pooled_settle: it is counted, a claim
 * of `claimed_bytes` in the registry ends, and the allocation is made. 0: no host memory, or some
 * of the run is lost; the segments are the caller's as before. */
bool pooled_claim(struct pool *pool, uint64_t bytes, struct stream_key key, struct run *run);
uint64_t pooled_settle(struct pool *pool, const struct run *run, struct segment **segments,
                       size_t count, uint64_t bytes, uint64_t claimed_bytes);
bool pooled_run_is_lost(struct pool *pool, const struct run *run);
void pooled_unclaim(struct pool *pool, const struct run *run);
/* It cannot be given back: nobody has these addresses any more. */
void pooled_forfeit(struct pool *pool, const struct run *run);

/* There are pools of ours with memory. */
bool pooled_are_there(void);
/* What is allocated at the address; false: nothing of ours. */
bool pooled_find(uint64_t address, struct allocated *found);
/* It lies in memory of a pool of ours. */
bool pooled_cover(uint64_t address);
/* The device may use it: CUmemAccess_flags. */
uint8_t pooled_access(uint64_t address, int device);
/* The number of the latest free. */
uint64_t pooled_latest_free(void);
/* A stream with frees that are not known to be over: its record, which stays and keeps its events
 * until it is given back with pooled_unuse, and what was in it. */
struct freed {
    struct freer *freer; /* NULL: none */
    struct stream_key key;
    uint64_t last;   /* the latest one */
    uint64_t idle;   /* as the freer's; who finds the stream idle raises it */
    uint64_t wanted; /* pooled_lacking: what was freed up to here is lacked */
    struct freed_mark marks[SPACE_MARKS];
    uint32_t marks_used;
};
/* Frees what begins there for its stream. False: nothing begins there. `mark` is what is to be
 * marked by an event, in the pool that is held then; no freer: nothing can be. */
bool pooled_free(uint64_t address, struct stream_key key, struct pool **pool, struct freed *mark);
/* The same when all work is over. First it is closed: nobody finds it any more. */
bool pooled_close(uint64_t address, struct allocated *closed);
void pooled_reopen(const struct allocated *closed);
void pooled_free_closed(const struct allocated *closed);

/* What a stream, or each one of a context (ALL_STREAMS), had freed up to that free is over. */
#define ALL_STREAMS UINT64_MAX
void pooled_over(struct stream_key key, uint64_t point);
/* What would be missing for it, if what others have freed and marked were its own; and who has the
 * first of that, to be given back with pooled_unuse. No freer: nobody. */
uint64_t pooled_lacking(struct pool *pool, uint64_t bytes, struct stream_key key,
                        struct freed *freed);
/* Another stream of the pool waits for that from now on: it has what was freed. False: no host
 * memory. */
bool pooled_follow(struct pool *pool, const struct freed *freed, uint64_t point,
                   struct stream_key key);
/* A context has ended: what was freed in it is over, its events are gone, and copies are made in
 * another one. */
void pooled_context_ended(uint64_t generation, const void *context, int device, void *other);
/* The memory of a chunk cannot come back. */
void pooled_lost(const struct chunk *chunk);

/* Those behind the first `skipped`, to be given back. Returns how many. */
size_t pooled_list_freed(struct pool *pool, size_t skipped, struct freed *list, size_t max);
void pooled_unuse(const struct freed *freed);
/* There are such, or (not NULL) such of other streams. */
bool pooled_has_freed(struct pool *pool, const struct stream_key *but);
/* One of which nothing is left, in no table any more: its events are the caller's, who frees it. */
struct freer *pooled_take_idle(struct pool *pool);
/* The event was recorded behind the free with this number. Returns what is of no use: that event,
 * or another one in whose place it is; or NULL. */
void *pooled_marked(const struct freed *freed, void *event, uint64_t point);
/* That event is done, and it was the oldest one. Returns it, for others; NULL: somebody else uses
 * it. */
void *pooled_mark_done(const struct freed *freed, void *event);

/* A segment that is free for all, so that its pool keeps `keep_bytes` without it; or one that is
 * lost, of which nothing is allocated. Nobody has its addresses. Its chunk is to be given back.
 * NULL: there is none. */
struct segment *pooled_vacate(struct pool *pool, uint64_t keep_bytes, struct extent **extent);
/* It was; the segment is freed. */
void pooled_vacated(struct segment *segment, struct extent *extent);
/* What all pools of the device keep without use. */
uint64_t pooled_kept_bytes(int device);

/* The memory of the allocation stays where it is from now on. False: it is not there, or not all of
 * it. */
bool pooled_fix(uint64_t address, bool *is_news);
/* Some of it all is not on its device. */
bool pooled_any_away(void);
/* Segments of the pool: those that begin at `after` (0: at the first address) or behind it, at most
 * `max`. */
size_t pooled_list_mapped(struct pool *pool, uint64_t after, struct block_range *ranges,
                          size_t max);

void pooled_after_fork(void);
