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

/* How many there are, so that who has none takes no lock. */
static _Atomic size_t there;

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
    struct physical *physical = calloc(1, sizeof *physical + count * sizeof physical->parts[0]);
    if (physical == NULL) return NULL;
    physical->bytes = bytes;
    physical->properties = *properties;
    physical->device = properties->location.id;
    physical->fixed = fixed;
    physical->part_count = count;
    for (size_t i = 0; i < count; i++) {
        const uint64_t left = bytes - i * part_bytes;
        physical->parts[i].chunk = (struct chunk){
            .physical = physical,
            .bytes = left < part_bytes ? left : part_bytes,
            .device = physical->device,
            .fixed = fixed,
        };
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
    atomic_fetch_add(&there, 1);
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
    if (physical != NULL) physical->holders++; /* a mapping keeps a released handle in use */
    return physical;
}

struct physical *physical_hold_at(uint64_t address) {
    if (!are_there()) return NULL;
    HOLD(LOCK_MEMORY);
    const struct view *view = view_at(address);
    if (view != NULL) view->physical->holders++;
    return view != NULL ? view->physical : NULL;
}

/* Whether it was the last that held it. Nobody finds it any more then. */
static bool ends(struct physical *physical) {
    if (physical->holders > 0 || physical->handles > 0) return false;
    tdelete(physical, &by_number, compare);
    return true;
}

bool physical_drop(struct physical *physical) {
    HOLD(LOCK_MEMORY);
    physical->holders--;
    return ends(physical);
}

void physical_remove(struct physical *physical) {
    lock_take(LOCK_MEMORY);
    for (size_t i = 0; i < physical->part_count; i++)
        chunks_leave_locked(&physical->parts[i].chunk);
    LIST_REMOVE(physical, next);
    atomic_fetch_sub(&there, 1);
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

static bool is_here(const struct physical *physical) {
    for (size_t i = 0; i < physical->part_count; i++)
        if (!chunks_is_here_locked(&physical->parts[i].chunk)) return false;
    return true;
}

static bool fix(struct physical *physical) {
    if (physical->fixed || !is_here(physical)) return false;
    physical->fixed = true;
    for (size_t i = 0; i < physical->part_count; i++)
        chunks_fix_locked(&physical->parts[i].chunk);
    registry_count_locked(physical->device, KIND_MAPPED, 0, physical->bytes, 1);
    return true;
}

bool physical_fix(struct physical *physical) {
    HOLD(LOCK_MEMORY);
    return fix(physical);
}

bool physical_fix_for_rdma(void) {
    struct physical *physical;
    bool is_news = false;
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next)
    if (physical->properties.allocFlags.gpuDirectRDMACapable) is_news = fix(physical) || is_news;
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

bool physical_enter_view(struct view *view) {
    HOLD(LOCK_MEMORY);
    if (!enter_pages(view)) return false;
    for (size_t i = 0; i < view->physical->part_count; i++) {
        struct mapping *piece = &view->pieces[i];
        piece->also = piece->chunk->mappings;
        piece->chunk->mappings = piece;
    }
    TAILQ_INSERT_TAIL(&views, view, next);
    return true;
}

static void leave(struct mapping *piece) {
    struct mapping **place = &piece->chunk->mappings;
    while (*place != piece)
        place = &(*place)->also;
    *place = piece->also;
    pages_leave(piece);
    piece->chunk = NULL;
}

void physical_leave_piece(struct mapping *piece, bool is_unmapped) {
    HOLD(LOCK_MEMORY);
    struct chunk *chunk = piece->chunk;
    if (is_unmapped) leave(piece);
    chunks_change_ended_locked(chunk);
}

bool physical_leave_view(struct view *view) {
    HOLD(LOCK_MEMORY);
    struct physical *physical = view->physical;
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
        .is_here = is_here(view->physical),
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

enum physical_range physical_range(uint64_t address, uint64_t bytes) {
    if (!are_there()) return PHYSICAL_NONE;
    HOLD(LOCK_MEMORY);
    const struct view *first = first_in(address, bytes);
    if (first == NULL) return PHYSICAL_NONE;
    const struct view *last = view_at(address + bytes - 1);
    const bool cut =
        first->address - address >= bytes || (last != NULL && end_of(last) != address + bytes);
    return cut ? PHYSICAL_CUT : PHYSICAL_WHOLE;
}

struct view *physical_close_view(uint64_t address, uint64_t bytes) {
    if (!are_there()) return NULL;
    HOLD(LOCK_MEMORY);
    struct view *view = first_in(address, bytes);
    if (view != NULL) view->closing = true;
    return view;
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

bool physical_any_away(void) {
    const struct physical *physical;
    if (!are_there()) return false;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(physical, &all, next)
    if (!is_here(physical)) break;
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
}
