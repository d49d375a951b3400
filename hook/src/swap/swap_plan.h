/* What the mover does next on a device. PURE: how things stand in, one step out. The mover takes
 * the step, and asks again. */
#pragma once

#include "memory/chunks.h"
#include "swap/host_arena.h"
#include "swap/mover.h"

/* So much is kept on its way: several chunks, so that a copy never waits for the mapping of the
 * next one; and not much more, so that a change of goal takes effect soon. */
#define SWAP_FLIGHTS_MIN 4
#define SWAP_FLIGHTS_MAX 32
#define SWAP_FLIGHT_BYTES ((uint64_t)64 << 20)
/* Of what is copied ahead of need, which the turn would wait for: two of the largest chunks. */
#define SWAP_COPY_BYTES ((uint64_t)128 << 20)

enum swap_step {
    SWAP_NOTHING, /* until a budget, a goal or the room changes */
    SWAP_WAIT,    /* until a copy that is on its way has ended */
    SWAP_UNMAP,   /* claim a chunk whose host copy is still good, and unmap it */
    SWAP_LEAVE,   /* claim a chunk and begin to copy it out */
    SWAP_COPY,    /* the same ahead of need: it stays, and has a host copy then */
    SWAP_COME,    /* claim a parked chunk, map it and begin to copy it in */
    SWAP_CONFIRM, /* the host copies of what is back can go; of a park, those made ahead of need */
    SWAP_ROLL_BACK, /* as SWAP_UNMAP, because the restore has failed */
    SWAP_GIVE_UP,   /* the restore has failed, and what had come is gone again */
};

struct swap_view {
    enum mover_goal goal;
    uint32_t flights;                /* copies on their way, on all devices; */
    uint64_t flight_bytes;           /* and their bytes */
    uint64_t leaving_bytes;          /* those of this device alone */
    uint64_t bytes_over, bytes_free; /* by the budget, what leaves counted as there */
    uint64_t bytes_to_copy;          /* so much more is to have a host copy ahead of need */
    struct chunk_sums chunks;        /* a step that claims one of these finds it */
    bool arrives;                    /* copies to this device are on their way */
    bool comes_ahead;     /* the budget is for memory that comes back ahead of the turn */
    bool all_here;        /* nothing is parked or moving on any device */
    bool host_is_short;   /* no host memory was to be had */
    bool host_is_tight;   /* swap_host_is_tight; of a park, mover_host_ends_copies */
    bool stream_is_short; /* the driver had no memory for a copy out, a moment ago */
    bool room_is_short;   /* the driver had no memory: room was asked for and is not there yet */
    bool has_failed;      /* there will be no room in time */
};

enum swap_step swap_plan(const struct swap_view *view);

/* How much host memory is to be kept ready, and whether to give back what is beyond it. */
struct swap_host_view {
    uint64_t free_bytes;    /* ready, and not in use */
    uint64_t begun_bytes;   /* of a segment that nobody goes on with for now */
    uint64_t hint_bytes;    /* so much more would have to leave if another one came back */
    uint64_t movable_bytes; /* so much could */
    uint64_t excess_ms;     /* more than that was ready for so long */
    uint64_t room_bytes;    /* the system leaves so much for everybody */
    bool is_short;          /* the system runs short of it */
};

#define SWAP_EXCESS_MS 30000
/* So much is left to others where there is little: they park into it while our copies go. */
#define SWAP_HOST_LEFT_BYTES (2 * HOST_ARENA_SEGMENT_BYTES)

/* Beside host copies of what is back here, others may not find host memory for what has to leave so
 * that the rest, `parked_bytes`, finds its place. */
bool swap_host_is_tight(uint64_t room_bytes, uint64_t parked_bytes);

enum swap_host_step {
    SWAP_HOST_KEEP,
    SWAP_HOST_PREPARE, /* up to swap_host_wanted */
    SWAP_HOST_TRIM,    /* likewise; all of it where the system is short */
};
uint64_t swap_host_wanted(const struct swap_host_view *view);
enum swap_host_step swap_host_plan(const struct swap_host_view *view);
