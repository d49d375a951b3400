#include "swap_plan.h"

#include "host_arena.h"

static bool can_fly(const struct swap_view *view) {
    if (view->flights >= SWAP_FLIGHTS_MAX) return false;
    return view->flights < SWAP_FLIGHTS_MIN || view->flight_bytes < SWAP_FLIGHT_BYTES;
}

static enum swap_step wait_or(const struct swap_view *view, enum swap_step otherwise) {
    return view->flights > 0 ? SWAP_WAIT : otherwise;
}

static enum swap_step plan_park(const struct swap_view *view) {
    /* What is on its way out will be gone. */
    if (view->bytes_over <= view->leaving_bytes) return wait_or(view, SWAP_NOTHING);
    if (view->has_copies) return view->arrives ? SWAP_WAIT : SWAP_UNMAP;
    const bool can_leave = view->bytes_movable > view->leaving_bytes && !view->host_is_short;
    return can_leave && can_fly(view) ? SWAP_LEAVE : wait_or(view, SWAP_NOTHING);
}

static enum swap_step plan_restore(const struct swap_view *view) {
    if (view->has_failed) {
        if (view->flights > 0) return SWAP_WAIT;
        return view->has_copies ? SWAP_ROLL_BACK : SWAP_GIVE_UP;
    }
    if (view->bytes_parked > 0) {
        const uint64_t needed = view->next_bytes > 0 ? view->next_bytes : 1;
        const bool can_come = view->bytes_free >= needed && !view->room_is_short;
        return can_come && can_fly(view) ? SWAP_COME : wait_or(view, SWAP_NOTHING);
    }
    if (view->flights > 0) return SWAP_WAIT;
    return view->all_here && view->has_copies ? SWAP_CONFIRM : SWAP_NOTHING;
}

enum swap_step swap_plan(const struct swap_view *view) {
    if (view->goal == MOVER_PARK) return plan_park(view);
    if (view->goal == MOVER_RESTORE) return plan_restore(view);
    return wait_or(view, SWAP_NOTHING);
}

uint64_t swap_host_wanted(const struct swap_host_view *view) {
    if (view->is_short) return 0;
    return view->hint_bytes < view->movable_bytes ? view->hint_bytes : view->movable_bytes;
}

enum swap_host_step swap_host_plan(const struct swap_host_view *view) {
    const uint64_t wanted_bytes = swap_host_wanted(view);
    if (view->free_bytes < wanted_bytes) return SWAP_HOST_PREPARE;
    const bool has_excess = view->free_bytes >= wanted_bytes + HOST_ARENA_SEGMENT_BYTES;
    if (has_excess && (view->is_short || view->excess_ms >= SWAP_EXCESS_MS)) return SWAP_HOST_TRIM;
    return SWAP_HOST_KEEP;
}
