#include "memory/physical.h"

#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hold.h"
#include "memory/blocks.h"

/* No driver has given out such numbers. */
#define FIRST_NUMBER ((uint64_t)0x47 << 56)
/* 64 GiB: in a larger range a look at each view is quicker than one at each page. */
#define PAGES_LOOKED_AT ((uint64_t)32 << 10)

/* Guarded by LOCK_MEMORY. */
static void *by_number; /* of search.h */
static LIST_HEAD(, physical) all = LIST_HEAD_INITIALIZER(all);
static TAILQ_HEAD(, view) views = TAILQ_HEAD_INITIALIZER(views);
static uint64_t last_number = FIRST_NUMBER;

/* How many there are, so that who has none takes no lock; all written under it. */
static _Atomic size_t there;
static _Atomic size_t wholes_wanted, unused_there;

static void count_there(int change) {
    const size_t now = atomic_load_explicit(&there, memory_order_relaxed) + (size_t)change;
    atomic_store_explicit(&there, now, memory_order_release);
}

static bool are_there(void) {
    return atomic_load_explicit(&there, memory_order_acquire) != 0;
}

static int compare(const void *left, const void *right) {
    const struct physical *a = left, *b = right;
    return a->number == b->number ? 0 : a->number < b->number ? -1 : 1;
}

static struct physical *find(uint64_t number) {
    const struct physical wanted = {.number = number};
    struct physical **node = tfind(&wanted, &by_number, compare);
    return node != NULL ? *node : NULL;
}

static struct view *view_at(uint64_t address) {
    const struct mapping *mapping = pages_find(address);
    struct view *view = mapping != NULL ? mapping->view : NULL;
    return view != NULL && !view->closing ? view : NULL;
}

static uint64_t end_of(const struct view *view) {
    return view->address + view->physical->bytes;
}

/* ---- what handles stand for -------------------------------------------------------------------
 */

struct physical *physical_new(const CUmemAllocationProp *properties, uint64_t bytes, bool fixed) {
    const uint64_t part_bytes = fixed ? bytes : CHUNK_BYTES_MAX;
    const size_t count = (bytes + part_bytes - 1) / part_bytes;
    struct physical *physical = malloc(sizeof *physical + count * sizeof physical->parts[0]);
    if (physical == NULL) return NULL;
    *physical = (struct physical){
        .bytes = bytes,
        .properties = *properties,
        .device = properties->location.id,
        .fixed = fixed,
        .part_count = count,
    };
    for (size_t i = 0; i < count; i++) {
        const uint64_t left = bytes - i * part_bytes;
        physical->parts[i] = (struct part){.chunk = {
                                               .physical = physical,
                                               .bytes = left < part_bytes ? left : part_bytes,
                                               .device = physical->device,
                                               .fixed = fixed,
                                               .is_empty = true,
                                           }};
    }
    return physical;
}

bool physical_is_number(uint64_t number) {
    return number >> 56 == FIRST_NUMBER >> 56;
}

bool physical_enter(struct physical *physical, uint64_t *number) {
    HOLD(LOCK_MEMORY);
    physical->number = ++last_number;
    if (tsearch(physical, &by_number, compare) == NULL) return false;
    physical->id = blocks_next_id();
    physical->handles = 1;
    for (size_t i = 0; i < physical->part_count; i++)
        chunks_enter_locked(&physical->parts[i].chunk);
    LIST_INSERT_HEAD(&all, physical, next);
    count_there(1);
    registry_count_locked(physical->device, KIND_MAPPED, physical->bytes,
                          physical->fixed ? physical->bytes : 0, 1);
    registry_unclaim_locked(physical->device, physical->bytes);
    *number = physical->number;
    return true;
}

struct physical *physical_hold(uint64_t number) {
    if (!are_there()) return NULL;
    HOLD(LOCK_MEMORY);
    struct physical *physical = find(number);
    while (physical != NULL && physical->changes)
        physical = chunks_wait_locked() ? find(number) : NULL;
    if (physical != NULL) physical->holders++; /* a mapping keeps a released handle in use */
    return physical;
}

struct physical *physical_hold_at(uint64_t address) {
    if (!are_there()) return NULL;
    HOLD(LOCK_MEMORY);
    const struct view *view = view_at(address);
    while (view != NULL && view->physical->changes)
        view = chunks_wait_locked() ? view_at(address) : NULL;
    if (view != NULL) view->physical->holders++;
    return view != NULL ? view->physical : NULL;
}

static bool is_let_go(const struct physical *physical) {
    return physical->holders == 0 && physical->handles == 0;
}

/* Whether it was the last that held it. Nobody finds it any more then. */
static bool ends(struct physical *physical) {
    if (!is_let_go(physical)) return false;
    tdelete(physical, &by_number, compare);
    return true;
}

bool physical_drop(struct physical *physical) {
    HOLD(LOCK_MEMORY);
    physical->holders--;
    return ends(physical);
}

static void note_whole(struct physical *physical, enum physical_whole whole) {
    if (physical->whole == WHOLE_WANTED) atomic_fetch_sub(&wholes_wanted, 1);
    if (whole == WHOLE_WANTED) atomic_fetch_add(&wholes_wanted, 1);
    physical->whole = (uint8_t)whole;
}

void physical_remove(struct physical *physical) {
    lock_take(LOCK_MEMORY);
    note_whole(physical, WHOLE_GONE);
    for (size_t i = 0; i < physical->part_count; i++)
        chunks_leave_locked(&physical->parts[i].chunk);
    LIST_REMOVE(physical, next);
    count_there(-1);
    registry_count_locked(physical->device, KIND_MAPPED, physical->bytes,
                          physical->fixed ? physical->bytes : 0, -1);
    lock_release(LOCK_MEMORY);
    free(physical);
}

void physical_retain(struct physical *physical) {
    HOLD(LOCK_MEMORY);
    physical->handles++;
}

bool physical_release(uint64_t number, struct physical **unused) {
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    struct physical *physical = find(number);
    if (physical == NULL || physical->handles == 0) return false;
    physical->handles--;
    *unused = ends(physical) ? physical : NULL;
    return true;
}

static bool all_are(const struct physical *physical, bool (*are)(const struct chunk *chunk)) {
    for (size_t i = 0; i < physical->part_count; i++)
        if (!are(&physical->parts[i].chunk)) return false;
    return true;
}

static bool fix(struct physical *physical) {
    if (physical->fixed) return false;
    physical->fixed = true;
    for (size_t i = 0; i < physical->part_count; i++)
        chunks_fix_locked(&physical->parts[i].chunk);
    registry_count_locked(physical->device, KIND_MAPPED, 0, physical->bytes, 1);
    return true;
}

bool physical_fix(struct physical *physical, bool *is_news) {
    HOLD(LOCK_MEMORY);
    *is_news = all_are(physical, chunks_is_here_locked) && fix(physical);
    return physical->fixed;
}

bool physical_fix_for_rdma(void) {
    struct physical *physical;
    bool is_news = false;
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next)
    if (physical->properties.allocFlags.gpuDirectRDMACapable &&
        all_are(physical, chunks_can_stay_locked))
        is_news = fix(physical) || is_news;
    return is_news;
}

void physical_context_ended(const void *context, int device, void *other) {
    struct physical *physical;
    if (!are_there()) return;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next)
    for (size_t i = 0; physical->device == device && i < physical->part_count; i++)
        if (physical->parts[i].chunk.context == context) physical->parts[i].chunk.context = other;
}

/* ---- where they are mapped --------------------------------------------------------------------
 */

static bool enter_pages(struct view *view) {
    for (size_t i = 0; i < view->physical->part_count; i++) {
        if (pages_enter(&view->pieces[i])) continue;
        while (i-- > 0)
            pages_leave(&view->pieces[i]);
        return false;
    }
    return true;
}

CUresult physical_enter_view(struct view *view) {
    HOLD(LOCK_MEMORY);
    if (!all_are(view->physical, chunks_is_here_locked)) return CUDA_ERROR_ILLEGAL_STATE;
    if (!enter_pages(view)) return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < view->physical->part_count; i++) {
        struct mapping *piece = &view->pieces[i];
        piece->also = piece->chunk->mappings;
        piece->chunk->mappings = piece;
        piece->chunk->is_empty = false;
    }
    TAILQ_INSERT_TAIL(&views, view, next);
    return CUDA_SUCCESS;
}

static void leave(struct mapping *piece) {
    struct mapping **place = &piece->chunk->mappings;
    while (*place != piece)
        place = &(*place)->also;
    *place = piece->also;
    pages_leave(piece);
    piece->chunk = NULL;
}

bool physical_leave_piece(struct mapping *piece, bool is_unmapped) {
    HOLD(LOCK_MEMORY);
    struct view *view = piece->view;
    struct physical *physical = view->physical;
    struct chunk *chunk = piece->chunk;
    if (is_unmapped) leave(piece);
    chunks_change_ended_locked(chunk);
    if (!is_unmapped || piece != &view->pieces[physical->part_count - 1]) return false;
    TAILQ_REMOVE(&views, view, next);
    free(view);
    physical->holders--;
    return ends(physical);
}

bool physical_look(uint64_t address, struct physical_place *place) {
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    const struct view *view = view_at(address);
    if (view == NULL) return false;
    *place = (struct physical_place){
        .address = view->address,
        .bytes = view->physical->bytes,
        .id = view->physical->id,
        .context = view->physical->parts[0].chunk.context,
        .is_here = all_are(view->physical, chunks_is_here_locked),
    };
    memcpy(place->access, view->access, sizeof place->access);
    return true;
}

static bool meets(const struct view *view, uint64_t address, uint64_t bytes) {
    return view->address - address < bytes || address - view->address < view->physical->bytes;
}

bool physical_is_in(uint64_t address, uint64_t bytes) {
    const struct view *view;
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    TAILQ_FOREACH(view, &views, next)
    if (meets(view, address, bytes)) break;
    return view != NULL;
}

static struct view *first_by_pages(uint64_t address, uint64_t bytes) {
    struct view *view = NULL;
    for (uint64_t at = address; at - address < bytes && view == NULL; at += PAGE_BYTES)
        view = view_at(at);
    return view;
}

static struct view *first_of_all(uint64_t address, uint64_t bytes) {
    struct view *view, *first = NULL;
    TAILQ_FOREACH(view, &views, next)
    if (!view->closing && meets(view, address, bytes) &&
        (first == NULL || view->address < first->address))
        first = view;
    return first;
}

static struct view *first_in(uint64_t address, uint64_t bytes) {
    return bytes / PAGE_BYTES <= PAGES_LOOKED_AT ? first_by_pages(address, bytes)
                                                 : first_of_all(address, bytes);
}

static enum physical_range range_of(uint64_t address, uint64_t bytes) {
    const struct view *first = first_in(address, bytes);
    if (first == NULL) return PHYSICAL_NONE;
    const struct view *last = view_at(address + bytes - 1);
    const bool cut =
        first->address - address >= bytes || (last != NULL && end_of(last) != address + bytes);
    return cut ? PHYSICAL_CUT : PHYSICAL_WHOLE;
}

enum physical_range physical_range(uint64_t address, uint64_t bytes) {
    if (!are_there()) return PHYSICAL_NONE;
    HOLD(LOCK_MEMORY);
    return range_of(address, bytes);
}

enum physical_range physical_close_view(uint64_t address, uint64_t bytes, struct view **view) {
    *view = NULL;
    if (!are_there()) return PHYSICAL_NONE;
    HOLD(LOCK_MEMORY);
    const enum physical_range range = range_of(address, bytes);
    if (range != PHYSICAL_WHOLE) return range;
    *view = first_in(address, bytes);
    while (*view != NULL && (*view)->physical->changes)
        *view = chunks_wait_locked() ? first_in(address, bytes) : NULL;
    if (*view != NULL) (*view)->closing = true;
    return range;
}

void physical_reopen_view(struct view *view) {
    HOLD(LOCK_MEMORY);
    view->closing = false;
}

uint64_t physical_note_access(uint64_t address, uint64_t end, int device, uint8_t flags) {
    struct view *view;
    HOLD(LOCK_MEMORY);
    while (address < end && (view = view_at(address)) != NULL) {
        view->access[device] = flags;
        address = end_of(view);
    }
    return address;
}

/* ---- becoming one allocation ------------------------------------------------------------------
 */

enum physical_whole physical_whole(uint64_t number, bool wants) {
    HOLD(LOCK_MEMORY);
    struct physical *physical = find(number);
    if (physical == NULL) return WHOLE_GONE;
    if (physical->part_count == 1) return WHOLE_MADE;
    if (wants) note_whole(physical, WHOLE_WANTED);
    return (enum physical_whole)physical->whole;
}

bool physical_whole_refuse(uint64_t number, enum physical_whole why) {
    struct physical *physical;
    bool any = false;
    if (!physical_whole_wanted()) return false;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next) {
        const bool is_meant = number == 0 ? !physical->changes : physical->number == number;
        if (!is_meant || physical->whole != WHOLE_WANTED) continue;
        note_whole(physical, why);
        any = true;
    }
    return any;
}

bool physical_whole_wanted(void) {
    return atomic_load(&wholes_wanted) > 0;
}

struct view *physical_next_view(const struct physical *physical, const struct view *after) {
    HOLD(LOCK_MEMORY);
    struct view *view = after == NULL ? TAILQ_FIRST(&views) : TAILQ_NEXT(after, next);
    while (view != NULL && view->physical != physical)
        view = TAILQ_NEXT(view, next);
    return view;
}

/* Whether a call uses it, or a thread is about to unmap it. Nobody begins while the gate is shut.
 */
static bool is_in_use(const struct physical *physical) {
    const struct view *view;
    uint32_t mapped = 0;
    TAILQ_FOREACH(view, &views, next) {
        if (view->physical != physical) continue;
        if (view->closing) return true;
        mapped++;
    }
    if (physical->holders != mapped) return true;
    for (size_t i = 0; i < physical->part_count; i++)
        if (physical->parts[i].chunk.state == CHUNK_CHANGING) return true;
    return false;
}

/* An unmap that failed halfway has left parts of a view. */
static bool can_be_whole(const struct physical *physical) {
    const struct view *view;
    for (size_t i = 0; i < physical->part_count; i++)
        if (!chunks_may_leave_locked(&physical->parts[i].chunk)) return false;
    TAILQ_FOREACH(view, &views, next)
    for (size_t i = 0; view->physical == physical && i < physical->part_count; i++)
        if (view->pieces[i].chunk == NULL || !view->pieces[i].there) return false;
    return true;
}

struct physical *physical_whole_begin_locked(bool *later) {
    struct physical *physical;
    *later = false;
    LIST_FOREACH(physical, &all, next) {
        /* What is let go somebody gives back just now. */
        if (physical->whole != WHOLE_WANTED || is_let_go(physical)) continue;
        if (is_in_use(physical))
            *later = true;
        else if (can_be_whole(physical))
            break;
        else
            note_whole(physical, WHOLE_STAYS);
    }
    if (physical == NULL) return NULL;
    physical->changes = true;
    physical->holders++;
    for (size_t i = 0; i < physical->part_count; i++)
        chunks_claim_locked(&physical->parts[i].chunk);
    return physical;
}

/* One mapping of all of it, in the chain of its chunk. */
static void join_pieces(struct view *view, size_t part_count, struct chunk *chunk) {
    for (size_t i = 0; i < part_count; i++)
        pages_leave(&view->pieces[i]);
    struct mapping *piece = &view->pieces[0];
    piece->bytes = view->physical->bytes;
    piece->chunk = chunk;
    piece->there = true;
    piece->also = chunk->mappings;
    chunk->mappings = piece;
    pages_enter(piece); /* these addresses were there before */
}

void physical_whole_made(struct physical *physical, uint64_t handle) {
    struct view *view;
    const size_t part_count = physical->part_count;
    struct chunk *chunk = &physical->parts[0].chunk;
    HOLD(LOCK_MEMORY);
    for (size_t i = 0; i < part_count; i++)
        chunks_leave_locked(&physical->parts[i].chunk);
    *chunk = (struct chunk){
        .physical = physical,
        .bytes = physical->bytes,
        .handle = handle,
        .context = chunk->context,
        .device = physical->device,
        .fixed = true,
    };
    physical->part_count = 1;
    TAILQ_FOREACH(view, &views, next)
    if (view->physical == physical) join_pieces(view, part_count, chunk);
    chunks_enter_locked(chunk);
    physical->fixed = true;
    registry_count_locked(physical->device, KIND_MAPPED, 0, physical->bytes, 1);
}

void physical_whole_end(struct physical *physical, enum physical_whole answer) {
    HOLD(LOCK_MEMORY);
    if (physical->whole == WHOLE_WANTED) note_whole(physical, answer);
    physical->changes = false;
    physical->holders--;
    physical->unused = ends(physical);
    if (physical->unused) atomic_fetch_add(&unused_there, 1);
    chunks_ended_locked();
}

struct physical *physical_take_unused(void) {
    struct physical *physical;
    if (atomic_load(&unused_there) == 0) return NULL;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next)
    if (physical->unused) break;
    if (physical == NULL) return NULL;
    physical->unused = false;
    atomic_fetch_sub(&unused_there, 1);
    return physical;
}

bool physical_any_away(void) {
    const struct physical *physical;
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next)
    if (!all_are(physical, chunks_is_here_locked)) break;
    return physical != NULL;
}

void physical_after_fork(void) {
    struct physical *physical;
    struct view *view;
    while ((view = TAILQ_FIRST(&views)) != NULL) {
        TAILQ_REMOVE(&views, view, next);
        free(view);
    }
    while ((physical = LIST_FIRST(&all)) != NULL) {
        tdelete(physical, &by_number, compare);
        LIST_REMOVE(physical, next);
        free(physical);
    }
    atomic_store(&there, 0);
    atomic_store(&wholes_wanted, 0);
    atomic_store(&unused_there, 0);
}
