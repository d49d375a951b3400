#include "swap/mover_host.h"

#include <string.h>

#include "base/clock.h"
#include "base/ending.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "memory/chunks.h"
#include "swap/copy_pipeline.h"
#include "swap/host_arena.h"
#include "swap/residency.h"
#include "swap/swap_plan.h"

#define SHORT_NS 50000000u
#define RESTORE_LOOK_NS 20000000u
#define HOUSEKEEPING_NS 1000000000u
#define LITTLE_NS 200000000u

static struct {
    uint64_t wanted_bytes, chunk_bytes;
    int device;              /* that wants them */
    bool is_lacking;         /* not to be had, and not told yet */
    uint64_t short_until_ns; /* 0: not of late */
    uint64_t excess_since_ns;
    bool has_excess; /* at the last look */
    bool trims;      /* what is free goes back, down to `trims_to` */
    uint64_t trims_to;
} host;

void mover_host_want(int device, uint64_t chunk_bytes, uint64_t bytes) {
    host.device = device;
    host.chunk_bytes = chunk_bytes;
    host.wanted_bytes = bytes > chunk_bytes ? bytes : chunk_bytes;
}

void mover_host_lacks(void) {
    host.is_lacking = true;
}

bool mover_host_is_short(void) {
    return host.wanted_bytes > 0 || host.is_lacking || clock_now_ns() < host.short_until_ns;
}

/* Without what is managed: it has host memory of the driver's. */
static struct chunk_sums sums_of_all_devices(void) {
    struct chunk_sums all = {0};
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    for (int i = 0; i < count; i++) {
        const struct chunk_sums sums = chunks_sums_of(ordinals[i]);
        all.bytes_movable += sums.bytes_movable - sums.bytes_managed;
        all.bytes_parked += sums.bytes_parked - sums.bytes_kept;
        all.copied += sums.copied;
    }
    return all;
}

bool mover_host_is_tight(void) {
    return swap_host_is_tight(host_arena_system_room(), sums_of_all_devices().bytes_parked);
}

/* Not where more than they need goes back. */
bool mover_host_ends_copies(int device) {
    const bool gives_all = host.trims && host.trims_to == 0;
    return gives_all || !residency_copies_are_of_use(device) || host_arena_is_short() ||
           swap_host_is_tight(host_arena_system_room(), 0);
}

void mover_host_confirm(int device, bool copied_alone) {
    chunks_confirm_back(device, copied_alone, host_arena_give);
}

void mover_host_goal_changed(void) {
    host.short_until_ns = 0;
    host.trims = false;
    /* What a restore left free may be needed again soon; what was free before it was not needed. */
    if (!host.has_excess) host.excess_since_ns = clock_now_ns();
}

/* Registering needs a context, and ends with it: the one whose memory is to be parked, where
 * that works. */
static bool use_some_context(void) {
    void *context = chunks_movable_context();
    if (context == NULL || contexts_has_failed(context))
        if (contexts_list(false, &context, 1) == 0) return false;
    if (!ending_driver_use_begin()) return false;
    const bool is_used = pipeline_use_context(context);
    ending_driver_use_end();
    return is_used;
}

static enum mover_host_answer note_lack(void) {
    host.is_lacking = false;
    host.short_until_ns = clock_now_ns() + SHORT_NS;
    return MOVER_HOST_SHORT;
}

static enum mover_host_answer make_what_is_wanted(void) {
    /* What is free now is in pieces that are too small. */
    const uint64_t ready_bytes = host_arena_free() + host.wanted_bytes;
    host.wanted_bytes = 0;
    host.short_until_ns = 0;
    if (use_some_context() && host_arena_prepare(ready_bytes, host.device, host.chunk_bytes, 0))
        return MOVER_HOST_MORE;
    return note_lack();
}

static struct swap_host_view view_now(void) {
    struct swap_host_view view = {
        .free_bytes = host_arena_free(),
        .begun_bytes = host_arena_begun(),
        .hint_bytes = residency_park_hint(),
        .movable_bytes = sums_of_all_devices().bytes_movable,
        .room_bytes = host_arena_system_room(),
        .is_short = host_arena_is_short(),
    };
    const uint64_t now_ns = clock_now_ns();
    host.has_excess = view.free_bytes >= swap_host_wanted(&view) + HOST_ARENA_SEGMENT_BYTES;
    if (!host.has_excess) host.excess_since_ns = now_ns;
    view.excess_ms = (now_ns - host.excess_since_ns) / 1000000;
    return view;
}

static uint64_t spare_bytes(void) {
    return host_arena_free() + host_arena_begun();
}

/* Gives what is free beyond so many bytes back to the system, in steps: each takes a while, and a
 * turn may begin meanwhile. */
static enum mover_host_answer trim(uint64_t bytes) {
    const uint64_t spare_before = spare_bytes(), free_now = host_arena_free();
    const bool is_last = free_now <= bytes + HOST_ARENA_SEGMENT_BYTES, is_used = use_some_context();
    host_arena_trim(is_last ? bytes : free_now - HOST_ARENA_SEGMENT_BYTES, is_used);
    /* Where no segment is free as a whole, what was begun goes all the same. */
    if (!is_last && spare_bytes() >= spare_before) host_arena_trim(bytes, is_used);
    host.trims = spare_bytes() < spare_before;
    host.trims_to = bytes;
    return host.trims ? MOVER_HOST_MORE : MOVER_HOST_DONE;
}

/* Those who park for this restore are waited for, so copies on their way here hold nothing up. */
static enum mover_host_answer give_back_what_came(void) {
    const bool is_wanted = spare_bytes() > 0 && (host.trims || mover_host_is_tight());
    if (is_wanted) return trim(0);
    host.trims = false;
    return MOVER_HOST_DONE;
}

enum mover_host_answer mover_host_look(enum mover_goal goal) {
    /* Host memory is registered in a context, perhaps in the one that leaves. */
    if (atomic_load(&contexts_leaving) > 0) return MOVER_HOST_DONE;
    if (host.wanted_bytes > 0) return make_what_is_wanted();
    if (host.is_lacking) return note_lack();
    if (goal == MOVER_RESTORE) return give_back_what_came();
    if (pipeline_flights() > 0) {
        host.trims = false;
        return MOVER_HOST_DONE;
    }
    if (host.trims) return trim(host.trims_to);
    /* With nothing on its way and nothing wanted: a park that went on would use what was begun. */
    const struct swap_host_view view = view_now();
    switch (swap_host_plan(&view)) {
        case SWAP_HOST_PREPARE:
            /* Without the turn, memory leaves as soon as it has to; nothing is ahead of need. */
            if (goal != MOVER_REST || !use_some_context()) return MOVER_HOST_DONE;
            return host_arena_prepare(swap_host_wanted(&view), -1, 0, SWAP_HOST_LEFT_BYTES)
                       ? MOVER_HOST_MORE
                       : MOVER_HOST_DONE;
        case SWAP_HOST_TRIM:
            return trim(swap_host_wanted(&view));
        case SWAP_HOST_KEEP:
            return MOVER_HOST_DONE;
    }
    return MOVER_HOST_DONE;
}

/* When it is over, one more look follows: at the last one it may not have been. */
static uint64_t short_pause_ns(void) {
    if (clock_now_ns() < host.short_until_ns) return SHORT_NS;
    host.short_until_ns = 0;
    return 1;
}

uint64_t mover_host_pause_ns(enum mover_goal goal) {
    if (goal == MOVER_PARK && host.short_until_ns > 0) return short_pause_ns();
    /* Others may have become short of host memory meanwhile. */
    if (goal == MOVER_RESTORE && !chunks_all_confirmed()) return RESTORE_LOOK_NS;
    const bool has_some = spare_bytes() > 0 || sums_of_all_devices().copied > 0;
    if (has_some && host_arena_system_room() < HOST_ARENA_LITTLE_BYTES) return LITTLE_NS;
    return has_some || residency_park_hint() > 0 ? HOUSEKEEPING_NS : MOVER_HOST_NEVER;
}

void mover_host_after_fork(void) {
    memset(&host, 0, sizeof(host));
}
