#include "swap/swap_plan.h"

#include "swap/residency.h"

static bool can_fly(const struct swap_view *view) {
    if (view->flights >= SWAP_FLIGHTS_MAX) return false;
    return view->flights < SWAP_FLIGHTS_MIN || view->flight_bytes < SWAP_FLIGHT_BYTES;
}

static enum swap_step wait_or(const struct swap_view *view, enum swap_step otherwise) {
    return view->flights > 0 ? SWAP_WAIT : otherwise;
}

static bool can_come(const struct swap_view *view) {
    return view->chunks.to_come > 0 && view->bytes_over == 0 && !view->room_is_short &&
           view->bytes_free >= view->chunks.bytes_next;
}

static enum swap_step plan_to_come(const struct swap_view *view) {
    return can_come(view) && can_fly(view) ? SWAP_COME : wait_or(view, SWAP_NOTHING);
}

/* Into host memory that is ready, and with nothing else to do. Where others may lack it, or nobody
 * needs the copies any more, none is kept for that. A restore ahead of the turn that has failed
 * does not matter here. */
static enum swap_step plan_to_copy(const struct swap_view *view) {
    if (view->host_is_tight)
        return view->chunks.copied > 0 ? SWAP_CONFIRM : wait_or(view, SWAP_NOTHING);
    const bool can_copy = view->bytes_to_copy > 0 && view->chunks.to_copy > 0 && !view->arrives &&
                          !view->host_is_short && !view->stream_is_short;
    const bool can_begin = view->flights < SWAP_FLIGHTS_MAX && view->flight_bytes < SWAP_COPY_BYTES;
    return can_copy && can_begin ? SWAP_COPY : wait_or(view, SWAP_NOTHING);
}

/* What has failed once, or could not leave again, waits for the turn. */
static enum swap_step plan_park(const struct swap_view *view) {
    if (view->comes_ahead && !view->has_failed && can_come(view)) return plan_to_come(view);
    if (view->bytes_over == 0) return plan_to_copy(view);
    /* What is on its way out will be gone. */
    if (view->bytes_over <= view->leaving_bytes) return wait_or(view, SWAP_NOTHING);
    if (view->arrives) return SWAP_WAIT;
    if (view->chunks.to_take_back > 0) return SWAP_UNMAP;
    const bool can_leave =
        view->chunks.to_leave > 0 && !view->host_is_short && !view->stream_is_short;
    return can_leave && can_fly(view) ? SWAP_LEAVE : wait_or(view, SWAP_NOTHING);
}

static enum swap_step plan_restore(const struct swap_view *view) {
    if (view->has_failed) {
        if (view->flights > 0) return SWAP_WAIT;
        return view->chunks.to_take_back > 0 ? SWAP_ROLL_BACK : SWAP_GIVE_UP;
    }
    /* The turn is the scheduler's word that all of it finds room, and others need the host memory
     * to make that. Elsewhere a copy is kept to the end: what is recalled leaves without being
     * copied. */
    if (view->host_is_tight && view->chunks.copies > 0) return SWAP_CONFIRM;
    if (view->chunks.to_come > 0) return plan_to_come(view);
    if (view->flights > 0) return SWAP_WAIT;
    return view->all_here && view->chunks.copies > 0 ? SWAP_CONFIRM : SWAP_NOTHING;
}

enum swap_step swap_plan(const struct swap_view *view) {
    if (view->goal == MOVER_PARK) return plan_park(view);
    if (view->goal == MOVER_RESTORE) return plan_restore(view);
    return wait_or(view, SWAP_NOTHING);
}

bool swap_host_is_tight(uint64_t room_bytes, uint64_t parked_bytes) {
    return room_bytes < SWAP_HOST_LEFT_BYTES || room_bytes - SWAP_HOST_LEFT_BYTES < parked_bytes;
}

static bool leaves_little(const struct swap_host_view *view) {
    return view->is_short || swap_host_is_tight(view->room_bytes, 0);
}

uint64_t swap_host_wanted(const struct swap_host_view *view) {
    if (leaves_little(view)) return 0;
    return view->hint_bytes < view->movable_bytes ? view->hint_bytes : view->movable_bytes;
}

enum swap_host_step swap_host_plan(const struct swap_host_view *view) {
    const uint64_t wanted_bytes = swap_host_wanted(view);
    if (view->free_bytes < wanted_bytes) {
        /* One more must not be one too many, which would go back at once. */
        const bool leaves_enough = !swap_host_is_tight(view->room_bytes, HOST_ARENA_SEGMENT_BYTES);
        return leaves_enough ? SWAP_HOST_PREPARE : SWAP_HOST_KEEP;
    }
    const uint64_t spare_bytes = view->free_bytes + view->begun_bytes;
    if (leaves_little(view)) return spare_bytes > 0 ? SWAP_HOST_TRIM : SWAP_HOST_KEEP;
    /* Others may lack what is left of it here, where the system has less than could leave. */
    const bool is_missed = view->room_bytes < view->movable_bytes;
    const bool has_excess = view->free_bytes >= wanted_bytes + HOST_ARENA_SEGMENT_BYTES;
    if (has_excess && (is_missed || view->excess_ms >= SWAP_EXCESS_MS)) return SWAP_HOST_TRIM;
    return SWAP_HOST_KEEP;
}
