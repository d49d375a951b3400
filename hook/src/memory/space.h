/* PURE. The addresses of a stream-ordered pool: what is allocated there, what is free and for whom,
 * and where there is no memory. Whoever has the pool guards them.
 *
 * Freed memory is its stream's until the stream has come so far: who allocates in the same stream
 * may have it at once, all others when it is known to be over. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define SPACE_UNIT_BYTES ((uint64_t)512)
/* Memory comes and goes by so much. */
#define SPACE_SLOT_BYTES ((uint64_t)32 << 20)
#define SPACE_BINS 40
/* So many events a stream has for what it has freed. */
#define SPACE_MARKS 4

/* A stream: the generation of its context, and a number in it. */
struct stream_key {
    uint64_t context, stream;
};

enum extent_state {
    EXTENT_EMPTY,   /* whole slots without memory */
    EXTENT_FREE,    /* memory that nobody has allocated */
    EXTENT_USED,    /* an allocation */
    EXTENT_CLAIMED, /* on its way from one to another */
    EXTENT_LOST,    /* memory that cannot come back: nobody is given these addresses any more */
};

struct extent {
    uint64_t address;
    uint64_t bytes;           /* of whole units */
    uint64_t bytes_asked;     /* USED */
    uint64_t id;              /* USED: as of blocks */
    uint64_t point;           /* FREE: the number of its latest free */
    struct freer *freer;      /* FREE: who has it */
    uint8_t state;            /* enum extent_state */
    uint8_t was;              /* CLAIMED in a run: likewise */
    TAILQ_ENTRY(extent) next; /* by address */
    LIST_ENTRY(extent) alike; /* FREE: among those of its freer and bin */
};

/* An event of the stream, behind its free with this number. */
struct freed_mark {
    void *event;
    uint64_t point;
};

/* A stream that has freed memory, which is not known to be over. */
struct freer {
    struct stream_key key;
    uint64_t extents; /* FREE ones and such that were */
    uint64_t last;    /* the number of its latest free */
    uint64_t over;    /* all up to this one is over */
    uint64_t idle;    /* was over when it was freed: nobody need wait for it */
    struct freed_mark
        marks[SPACE_MARKS]; /* from the oldest on: the freer's as long as it is there */
    uint32_t marks_used;
    uint32_t users;                       /* who ask them just now */
    LIST_HEAD(, extent) bins[SPACE_BINS]; /* by powers of two of units */
    LIST_ENTRY(freer) next;
};

struct space {
    uint64_t address, bytes;
    TAILQ_HEAD(extent_list, extent) extents; /* all of it, by address */
    void *by_address;                        /* the same, of search.h */
    LIST_HEAD(, freer) freers;
    struct freer anybody; /* what is free for all */
    uint64_t bytes_asked; /* of what is allocated */
};

/* Addresses without memory, of whole slots. False: no host memory. */
bool space_open(struct space *space, uint64_t address, uint64_t bytes);
/* Forgets all. */
void space_close(struct space *space);

/* An allocation in memory that the stream may have. NULL: there is no part that is large enough. */
struct extent *space_take(struct space *space, uint64_t bytes, struct stream_key key, uint64_t id);

/* Parts side by side that together are large enough, with as little as possible that has no memory
 * yet. */
struct run {
    struct extent *first, *last;
    uint64_t bytes_missing;
};
/* What would be missing for the stream; UINT64_MAX: there are not so many addresses. */
uint64_t space_missing(const struct space *space, uint64_t bytes, struct stream_key key);
/* The same, if what others have freed and marked were the stream's own: the first such part of what
 * it would have then; NULL: none. */
struct extent *space_lacking(const struct space *space, uint64_t bytes, struct stream_key key,
                             uint64_t *missing);
/* Nobody else has them from then on. What is missing is EMPTY yet (`was`). False: there are none,
 * or no host memory. */
bool space_claim(struct space *space, uint64_t bytes, struct stream_key key, struct run *run);
/* There is memory everywhere: they become one allocation. */
struct extent *space_settle(struct space *space, const struct run *run, uint64_t bytes,
                            uint64_t id);
/* Nothing has come of it. */
void space_unclaim(struct space *space, const struct run *run);

/* Around the address; NULL: outside. */
struct extent *space_find(const struct space *space, uint64_t address);
/* Of an allocation, which may be CLAIMED: it was freed in that stream, as the free with this
 * number; or its memory is over at once. Without host memory for the freer nobody has it any more.
 */
void space_free(struct space *space, struct extent *extent, struct stream_key key, uint64_t point);
void space_free_now(struct space *space, struct extent *extent);
/* What the freer has freed up to that free is over. */
void space_over(struct space *space, struct freer *freer, uint64_t point);
/* Another stream waits for that: what was freed up to then is freed in that one, as the free `now`,
 * behind which nothing of that stream is yet. False: no host memory. */
bool space_follow(struct space *space, struct freer *freer, uint64_t point, struct stream_key key,
                  uint64_t now);
/* True: nobody has anything of it, nor uses it. It is in no table then, and the caller's, with its
 * events. */
bool space_forget(struct freer *freer);
struct freer *space_freer(struct space *space, struct stream_key key);

/* A part that is free for all, around these addresses: CLAIMED, to become EMPTY. NULL: it is not
 * such, or there is no host memory. */
struct extent *space_vacate(struct space *space, uint64_t address, uint64_t bytes);
/* The same where all of it is lost. */
struct extent *space_vacate_lost(struct space *space, uint64_t address, uint64_t bytes);
void space_vacated(struct space *space, struct extent *extent);
/* What is free there, for whomever, is lost; and a run, which cannot be settled any more. */
void space_lose(struct space *space, uint64_t address, uint64_t bytes);
bool space_run_is_lost(const struct run *run);
/* Calls `look` for each part that is free for all and may have so many bytes, until one answers
 * true; whether one has. */
bool space_look(const struct space *space, uint64_t bytes,
                bool (*look)(const struct extent *extent, void *argument), void *argument);
