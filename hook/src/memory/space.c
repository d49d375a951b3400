#include "memory/space.h"

#include <search.h>
#include <stdlib.h>

/* In a bin of the size that is looked for, not all parts are large enough. */
#define LOOKED_AT 8

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* Those that share an address are the same. */
static int compare(const void *left, const void *right) {
    const struct extent *a = left, *b = right;
    if (a->address + a->bytes <= b->address) return -1;
    return b->address + b->bytes <= a->address ? 1 : 0;
}

static unsigned bin_of(uint64_t bytes) {
    return 63u - (unsigned)__builtin_clzll(bytes / SPACE_UNIT_BYTES);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

static void enter_bin(struct extent *extent) {
    LIST_INSERT_HEAD(&extent->freer->bins[bin_of(extent->bytes)], extent, alike);
}

static void set_free(struct extent *extent, struct freer *freer, uint64_t point) {
    extent->state = EXTENT_FREE;
    extent->freer = freer;
    extent->point = point;
    freer->extents++;
    enter_bin(extent);
}

/* From FREE, and from CLAIMED where it was that. */
static void leave_freer(struct extent *extent) {
    if (extent->state == EXTENT_FREE) LIST_REMOVE(extent, alike);
    if (extent->freer != NULL) extent->freer->extents--;
    extent->freer = NULL;
}

/* Cuts it behind so many bytes; both parts are what it was. False: no host memory. */
static bool split(struct space *space, struct extent *extent, uint64_t bytes) {
    if (extent->bytes == bytes) return true;
    struct extent *rest = malloc(sizeof *rest);
    if (rest == NULL) return false;
    *rest = *extent;
    rest->address += bytes;
    rest->bytes -= bytes;
    if (extent->state == EXTENT_FREE) LIST_REMOVE(extent, alike);
    const uint64_t before = extent->bytes;
    extent->bytes = bytes;
    const bool entered = tsearch(rest, &space->by_address, compare) != NULL;
    if (!entered) extent->bytes = before;
    if (extent->state == EXTENT_FREE) enter_bin(extent);
    if (!entered) {
        free(rest);
        return false;
    }
    TAILQ_INSERT_AFTER(&space->extents, extent, rest, next);
    if (rest->freer != NULL) rest->freer->extents++;
    if (rest->state == EXTENT_FREE) enter_bin(rest);
    return true;
}

/* Takes a part out of all lists; its addresses are another one's from then on. */
static void forget(struct space *space, struct extent *extent) {
    leave_freer(extent);
    tdelete(extent, &space->by_address, compare);
    TAILQ_REMOVE(&space->extents, extent, next);
    free(extent);
}

static bool are_alike(const struct extent *left, const struct extent *right) {
    if (left == NULL || right == NULL || left->state != right->state) return false;
    return left->state == EXTENT_EMPTY ||
           (left->state == EXTENT_FREE && left->freer == right->freer);
}

static void join(struct space *space, struct extent *left, struct extent *right) {
    const uint64_t bytes = right->bytes;
    if (left->state == EXTENT_FREE) LIST_REMOVE(left, alike);
    if (right->point > left->point) left->point = right->point;
    forget(space, right);
    left->bytes += bytes;
    if (left->state == EXTENT_FREE) enter_bin(left);
}

static void join_neighbours(struct space *space, struct extent *extent) {
    struct extent *right = TAILQ_NEXT(extent, next);
    if (are_alike(extent, right)) join(space, extent, right);
    struct extent *left = TAILQ_PREV(extent, extent_list, next);
    if (are_alike(left, extent)) join(space, left, extent);
}

static void set_used(struct space *space, struct extent *extent, uint64_t bytes, uint64_t id) {
    extent->state = EXTENT_USED;
    extent->bytes_asked = bytes;
    extent->id = id;
    space->bytes_asked += bytes;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

bool space_open(struct space *space, uint64_t address, uint64_t bytes) {
    struct extent *whole = calloc(1, sizeof *whole);
    if (whole == NULL) return false;
    *space = (struct space){.address = address, .bytes = bytes};
    *whole = (struct extent){.address = address, .bytes = bytes, .state = EXTENT_EMPTY};
    TAILQ_INIT(&space->extents);
    if (tsearch(whole, &space->by_address, compare) == NULL) {
        free(whole);
        return false;
    }
    TAILQ_INSERT_HEAD(&space->extents, whole, next);
    return true;
}

void space_close(struct space *space) {
    struct extent *extent;
    struct freer *freer;
    while ((extent = TAILQ_FIRST(&space->extents)) != NULL)
        forget(space, extent);
    while ((freer = LIST_FIRST(&space->freers)) != NULL) {
        LIST_REMOVE(freer, next);
        free(freer);
    }
}

struct extent *space_find(const struct space *space, uint64_t address) {
    const struct extent wanted = {.address = address, .bytes = 1};
    struct extent **node = tfind(&wanted, &space->by_address, compare);
    return node != NULL ? *node : NULL;
}

struct freer *space_freer(struct space *space, struct stream_key key) {
    struct freer *freer;
    LIST_FOREACH(freer, &space->freers, next)
    if (freer->key.context == key.context && freer->key.stream == key.stream) break;
    return freer;
}

/* ---- allocating where there is memory ---------------------------------------------------------
 */

static struct extent *fit_in(struct freer *freer, unsigned bin, uint64_t bytes) {
    struct extent *extent;
    int looked_at = 0;
    LIST_FOREACH(extent, &freer->bins[bin], alike) {
        if (extent->bytes >= bytes) return extent;
        if (++looked_at == LOOKED_AT) break;
    }
    return NULL;
}

struct extent *space_take(struct space *space, uint64_t bytes, struct stream_key key, uint64_t id) {
    const uint64_t rounded = round_up(bytes, SPACE_UNIT_BYTES);
    struct freer *own = space_freer(space, key);
    struct extent *extent = NULL;
    for (unsigned bin = bin_of(rounded); bin < SPACE_BINS && extent == NULL; bin++) {
        if (own != NULL) extent = fit_in(own, bin, rounded);
        if (extent == NULL) extent = fit_in(&space->anybody, bin, rounded);
    }
    if (extent == NULL || !split(space, extent, rounded)) return NULL;
    leave_freer(extent);
    set_used(space, extent, bytes, id);
    return extent;
}

/* ---- allocating where some is missing ---------------------------------------------------------
 */

/* Who allocates: parts of others that are marked count as well, or do not. */
struct taker {
    struct stream_key key;
    bool follows;
};

static bool is_its_own(const struct space *space, const struct extent *extent,
                       struct stream_key key) {
    const struct freer *freer = extent->freer;
    return freer == &space->anybody ||
           (freer->key.context == key.context && freer->key.stream == key.stream);
}

static bool is_marked(const struct extent *extent) {
    const struct freer *freer = extent->freer;
    const uint32_t marks = freer->marks_used;
    return extent->point <= freer->idle ||
           (marks > 0 && extent->point <= freer->marks[marks - 1].point);
}

static bool may_have(const struct space *space, const struct extent *extent,
                     const struct taker *taker) {
    if (extent->state != EXTENT_FREE) return extent->state == EXTENT_EMPTY;
    return is_its_own(space, extent, taker->key) || (taker->follows && is_marked(extent));
}

static uint64_t missing_in(const struct extent *extent) {
    return extent->state == EXTENT_EMPTY ? extent->bytes : 0;
}

/* Parts side by side, from `first` to before `end`. */
struct window {
    struct extent *first, *end;
    uint64_t bytes, missing;
};

/* Of the last part not all slots are needed. */
static uint64_t missing_of(const struct window *window, const struct extent *last,
                           uint64_t wanted) {
    const uint64_t spare = window->bytes - wanted;
    return window->missing -
           (last->state == EXTENT_EMPTY ? spare / SPACE_SLOT_BYTES * SPACE_SLOT_BYTES : 0);
}

static void drop_first(struct window *window) {
    window->bytes -= window->first->bytes;
    window->missing -= missing_in(window->first);
    window->first = TAILQ_NEXT(window->first, next);
}

/* Where the best such parts begin; NULL: there are none. */
static struct extent *best_first(const struct space *space, uint64_t bytes,
                                 const struct taker *taker, uint64_t *missing) {
    struct extent *best = NULL, *extent;
    struct window window = {.first = TAILQ_FIRST(&space->extents)};
    *missing = UINT64_MAX;
    TAILQ_FOREACH(extent, &space->extents, next) {
        if (!may_have(space, extent, taker)) {
            window = (struct window){.first = TAILQ_NEXT(extent, next)};
            continue;
        }
        window.bytes += extent->bytes;
        window.missing += missing_in(extent);
        for (; window.first != NULL && window.bytes >= bytes; drop_first(&window)) {
            const uint64_t missing_here = missing_of(&window, extent, bytes);
            if (missing_here < *missing) {
                *missing = missing_here;
                best = window.first;
            }
            if (window.first == extent) {
                drop_first(&window);
                break;
            }
        }
    }
    return best;
}

uint64_t space_missing(const struct space *space, uint64_t bytes, struct stream_key key) {
    uint64_t missing;
    const struct taker taker = {.key = key};
    best_first(space, round_up(bytes, SPACE_UNIT_BYTES), &taker, &missing);
    return missing;
}

struct extent *space_lacking(const struct space *space, uint64_t bytes, struct stream_key key,
                             uint64_t *missing) {
    const struct taker taker = {.key = key, .follows = true};
    uint64_t left = round_up(bytes, SPACE_UNIT_BYTES);
    struct extent *extent = best_first(space, left, &taker, missing);
    for (; extent != NULL; extent = TAILQ_NEXT(extent, next)) {
        if (extent->state == EXTENT_FREE && !is_its_own(space, extent, key)) return extent;
        if (extent->bytes >= left) return NULL;
        left -= extent->bytes;
    }
    return NULL;
}

bool space_claim(struct space *space, uint64_t bytes, struct stream_key key, struct run *run) {
    uint64_t left = round_up(bytes, SPACE_UNIT_BYTES);
    const struct taker taker = {.key = key};
    struct extent *extent = best_first(space, left, &taker, &run->bytes_missing);
    run->first = extent;
    run->last = NULL;
    for (; extent != NULL && left > 0; extent = TAILQ_NEXT(extent, next)) {
        const uint64_t unit = extent->state == EXTENT_EMPTY ? SPACE_SLOT_BYTES : SPACE_UNIT_BYTES;
        const uint64_t wanted = round_up(left, unit);
        const uint64_t part = extent->bytes < wanted ? extent->bytes : wanted;
        if (!split(space, extent, part)) break;
        if (extent->state == EXTENT_FREE) LIST_REMOVE(extent, alike);
        extent->was = extent->state;
        extent->state = EXTENT_CLAIMED;
        run->last = extent;
        left -= part < left ? part : left;
    }
    if (left == 0) return true;
    if (run->last != NULL) space_unclaim(space, run);
    return false;
}

/* What it was free for may be over meanwhile, and what was there lost. */
static void enter_again(struct space *space, struct extent *extent) {
    if (extent->state == EXTENT_LOST) leave_freer(extent);
    if (extent->state != EXTENT_FREE) return;
    enter_bin(extent);
    if (extent->freer == &space->anybody || extent->point > extent->freer->over) return;
    leave_freer(extent);
    set_free(extent, &space->anybody, 0);
}

void space_unclaim(struct space *space, const struct run *run) {
    struct extent *const end = TAILQ_NEXT(run->last, next);
    struct extent *extent, *next;
    for (extent = run->first; extent != end; extent = TAILQ_NEXT(extent, next)) {
        extent->state = extent->was;
        enter_again(space, extent);
    }
    for (extent = run->first; extent != end; extent = next) {
        next = TAILQ_NEXT(extent, next);
        struct extent *left = TAILQ_PREV(extent, extent_list, next);
        if (are_alike(left, extent)) join(space, left, extent);
    }
    struct extent *last = end != NULL ? TAILQ_PREV(end, extent_list, next) : NULL;
    if (are_alike(last, end)) join(space, last, end);
}

struct extent *space_settle(struct space *space, const struct run *run, uint64_t bytes,
                            uint64_t id) {
    const uint64_t rounded = round_up(bytes, SPACE_UNIT_BYTES);
    struct extent *const whole = run->first, *const end = TAILQ_NEXT(run->last, next);
    leave_freer(whole);
    for (struct extent *right; (right = TAILQ_NEXT(whole, next)) != end;) {
        const uint64_t right_bytes = right->bytes;
        forget(space, right);
        whole->bytes += right_bytes;
    }
    if (whole->bytes > rounded && split(space, whole, rounded)) {
        struct extent *rest = TAILQ_NEXT(whole, next);
        set_free(rest, &space->anybody, 0);
        join_neighbours(space, rest);
    }
    set_used(space, whole, bytes, id);
    return whole;
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

static struct freer *freer_for(struct space *space, struct stream_key key) {
    struct freer *freer = space_freer(space, key);
    if (freer != NULL) return freer;
    freer = calloc(1, sizeof *freer);
    if (freer == NULL) return NULL;
    freer->key = key;
    LIST_INSERT_HEAD(&space->freers, freer, next);
    return freer;
}

static void give(struct space *space, struct extent *extent, struct freer *freer, uint64_t point) {
    space->bytes_asked -= extent->bytes_asked;
    extent->id = 0;
    extent->state = EXTENT_CLAIMED;
    if (freer == NULL) return;
    if (point > freer->last) freer->last = point;
    set_free(extent, freer, point);
    join_neighbours(space, extent);
}

void space_free(struct space *space, struct extent *extent, struct stream_key key, uint64_t point) {
    give(space, extent, freer_for(space, key), point);
}

void space_free_now(struct space *space, struct extent *extent) {
    give(space, extent, &space->anybody, 0);
}

static void move(struct space *space, struct freer *freer, uint64_t point, struct freer *to,
                 uint64_t now) {
    struct extent *extent, *next;
    for (unsigned bin = 0; bin < SPACE_BINS; bin++) {
        for (extent = LIST_FIRST(&freer->bins[bin]); extent != NULL; extent = next) {
            next = LIST_NEXT(extent, alike);
            if (extent->point > point) continue;
            leave_freer(extent);
            set_free(extent, to, now);
            join_neighbours(space, extent);
        }
    }
}

void space_over(struct space *space, struct freer *freer, uint64_t point) {
    if (point > freer->over) freer->over = point < freer->last ? point : freer->last;
    move(space, freer, point, &space->anybody, 0);
}

bool space_follow(struct space *space, struct freer *freer, uint64_t point, struct stream_key key,
                  uint64_t now) {
    struct freer *to = freer_for(space, key);
    if (to == NULL || to == freer) return false;
    to->last = now;
    move(space, freer, point, to, now);
    return true;
}

bool space_forget(struct freer *freer) {
    if (freer->extents > 0 || freer->users > 0) return false;
    LIST_REMOVE(freer, next);
    return true;
}

/* ---- giving memory back -----------------------------------------------------------------------
 */

struct extent *space_vacate(struct space *space, uint64_t address, uint64_t bytes) {
    struct extent *extent = space_find(space, address);
    if (extent == NULL || extent->state != EXTENT_FREE || extent->freer != &space->anybody ||
        extent->address + extent->bytes < address + bytes)
        return NULL;
    if (address > extent->address) {
        if (!split(space, extent, address - extent->address)) return NULL;
        extent = TAILQ_NEXT(extent, next);
    }
    if (!split(space, extent, bytes)) {
        join_neighbours(space, extent);
        return NULL;
    }
    leave_freer(extent);
    extent->state = EXTENT_CLAIMED;
    return extent;
}

void space_vacated(struct space *space, struct extent *extent) {
    extent->state = EXTENT_EMPTY;
    join_neighbours(space, extent);
}

void space_lose(struct space *space, uint64_t address, uint64_t bytes) {
    struct extent *extent = space_find(space, address);
    for (; extent != NULL && extent->address < address + bytes; extent = TAILQ_NEXT(extent, next)) {
        if (extent->state == EXTENT_CLAIMED && extent->was == EXTENT_FREE)
            extent->was = EXTENT_LOST;
        if (extent->state != EXTENT_FREE) continue;
        if (extent->address < address) {
            if (!split(space, extent, address - extent->address)) continue;
            extent = TAILQ_NEXT(extent, next);
        }
        const uint64_t end = address + bytes;
        if (extent->address + extent->bytes > end && !split(space, extent, end - extent->address))
            continue;
        leave_freer(extent);
        extent->state = EXTENT_LOST;
    }
}

struct extent *space_vacate_lost(struct space *space, uint64_t address, uint64_t bytes) {
    struct extent *first = space_find(space, address), *right;
    const struct extent *extent = first;
    while (extent != NULL && extent->address < address + bytes && extent->state == EXTENT_LOST)
        extent = TAILQ_NEXT(extent, next);
    if (first == NULL || (extent != NULL && extent->address < address + bytes)) return NULL;
    if (address > first->address) {
        if (!split(space, first, address - first->address)) return NULL;
        first = TAILQ_NEXT(first, next);
    }
    while (first->bytes < bytes && (right = TAILQ_NEXT(first, next)) != NULL) {
        const uint64_t right_bytes = right->bytes;
        forget(space, right);
        first->bytes += right_bytes;
    }
    if (!split(space, first, bytes)) return NULL;
    first->state = EXTENT_CLAIMED;
    return first;
}

bool space_run_is_lost(const struct run *run) {
    const struct extent *const end = TAILQ_NEXT(run->last, next);
    const struct extent *extent = run->first;
    while (extent != end && extent->was != EXTENT_LOST)
        extent = TAILQ_NEXT(extent, next);
    return extent != end;
}

bool space_look(const struct space *space, uint64_t bytes,
                bool (*look)(const struct extent *extent, void *argument), void *argument) {
    const struct extent *extent;
    for (unsigned bin = bin_of(bytes); bin < SPACE_BINS; bin++)
        LIST_FOREACH(extent, &space->anybody.bins[bin], alike)
    if (extent->bytes >= bytes && look(extent, argument)) return true;
    return false;
}
