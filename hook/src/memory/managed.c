#include "memory/managed.h"

#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/hold.h"
#include "memory/registry.h"

#define PIECE_BYTES_LEAST ((uint64_t)8 << 20)

/* Guarded by LOCK_MEMORY. */
static void *by_address; /* of search.h */
static LIST_HEAD(, managed) all = LIST_HEAD_INITIALIZER(all);

static _Atomic size_t there; /* so that who has none takes no lock */

static int compare(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return *a == *b ? 0 : *a < *b ? -1 : 1;
}

/* Into how large pieces memory of so many bytes is cut: a power of two, up to CHUNK_BYTES_MAX.
 * Large ones copy at the full rate, small ones let a budget be kept to more exactly. */
static uint64_t piece_bytes_of(uint64_t bytes) {
    uint64_t piece_bytes = PIECE_BYTES_LEAST;
    while (piece_bytes < CHUNK_BYTES_MAX && piece_bytes < bytes / 8)
        piece_bytes *= 2;
    return piece_bytes;
}

struct managed *managed_new(uint64_t address, uint64_t bytes, void *context, uint64_t generation,
                            int device) {
    const uint64_t piece_bytes = piece_bytes_of(bytes);
    const size_t count = (bytes + piece_bytes - 1) / piece_bytes;
    struct managed *managed = calloc(1, sizeof *managed + count * sizeof managed->pieces[0]);
    if (managed == NULL) return NULL;
    managed->address = address;
    managed->bytes = bytes;
    managed->generation = generation;
    managed->device = device;
    managed->piece_count = count;
    for (size_t i = 0; i < count; i++) {
        const uint64_t at = i * piece_bytes, left = bytes - at;
        managed->pieces[i].chunk = (struct chunk){
            .managed_at = address + at,
            .handle = address + at,
            .bytes = left < piece_bytes ? left : piece_bytes,
            .context = context,
            .device = device,
        };
    }
    return managed;
}

/* ---- the table; with LOCK_MEMORY held ---------------------------------------------------------
 */

static bool put_in(struct managed *managed) {
    if (tsearch(managed, &by_address, compare) == NULL) return false;
    LIST_INSERT_HEAD(&all, managed, next);
    atomic_fetch_add(&there, 1);
    return true;
}

static void take_out(struct managed *managed) {
    tdelete(managed, &by_address, compare);
    LIST_REMOVE(managed, next);
    atomic_fetch_sub(&there, 1);
}

static void count(const struct managed *managed, int times) {
    const uint64_t fixed_bytes = managed->bytes_fixed;
    registry_count_locked(managed->device, KIND_PREFETCHED, managed->bytes - fixed_bytes, 0, times);
    registry_count_locked(managed->device, KIND_MANAGED, fixed_bytes, fixed_bytes, times);
}

/* ---- entering and leaving ---------------------------------------------------------------------
 */

bool managed_enter(struct managed *managed, uint64_t bytes_claimed) {
    HOLD(LOCK_MEMORY);
    if (!put_in(managed)) return false;
    for (size_t i = 0; i < managed->piece_count; i++)
        chunks_enter_locked(&managed->pieces[i].chunk);
    count(managed, 1);
    registry_unclaim_locked(managed->device, bytes_claimed);
    return true;
}

struct managed *managed_close(uint64_t address) {
    if (atomic_load_explicit(&there, memory_order_acquire) == 0) return NULL;
    HOLD(LOCK_MEMORY);
    struct managed **node = tfind(&address, &by_address, compare);
    struct managed *found = node != NULL ? *node : NULL;
    if (found != NULL) take_out(found);
    return found;
}

struct managed *managed_close_of_context(uint64_t generation) {
    struct managed *managed;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(managed, &all, next)
    if (managed->generation == generation) break;
    if (managed != NULL) take_out(managed);
    return managed;
}

void managed_reopen(struct managed *managed) {
    for (size_t i = 0; i < managed->piece_count; i++) {
        struct chunk *chunk = &managed->pieces[i].chunk;
        chunk->handle = chunk->managed_at;
        chunks_settle(chunk, CHUNK_RESIDENT);
    }
    HOLD(LOCK_MEMORY);
    put_in(managed);
}

void managed_remove(struct managed *managed) {
    lock_take(LOCK_MEMORY);
    for (size_t i = 0; i < managed->piece_count; i++)
        chunks_leave_locked(&managed->pieces[i].chunk);
    count(managed, -1);
    lock_release(LOCK_MEMORY);
    free(managed);
}

/* ---- what stays -------------------------------------------------------------------------------
 */

static bool overlap(uint64_t address, uint64_t bytes, uint64_t other, uint64_t other_bytes) {
    return address < other + other_bytes && other < address + bytes;
}

static struct managed *next_in(struct managed *from, uint64_t address, uint64_t bytes) {
    while (from != NULL && !overlap(address, bytes, from->address, from->bytes))
        from = LIST_NEXT(from, next);
    return from;
}

bool managed_is_in(uint64_t address, uint64_t bytes) {
    if (atomic_load_explicit(&there, memory_order_acquire) == 0) return false;
    HOLD(LOCK_MEMORY);
    return next_in(LIST_FIRST(&all), address, bytes) != NULL;
}

static bool fix_pieces(struct managed *managed, uint64_t address, uint64_t bytes) {
    const uint64_t fixed_bytes = managed->bytes_fixed;
    count(managed, -1);
    for (size_t i = 0; i < managed->piece_count; i++) {
        struct managed_piece *piece = &managed->pieces[i];
        const struct chunk *chunk = &piece->chunk;
        if (piece->stays || !chunks_is_here_locked(chunk) ||
            !overlap(address, bytes, chunk->managed_at, chunk->bytes))
            continue;
        chunks_fix_locked(&piece->chunk);
        piece->stays = true;
        managed->bytes_fixed += chunk->bytes;
    }
    count(managed, 1);
    return managed->bytes_fixed != fixed_bytes;
}

int managed_fix(uint64_t address, uint64_t bytes) {
    int device = -1;
    HOLD(LOCK_MEMORY);
    for (struct managed *at = LIST_FIRST(&all); (at = next_in(at, address, bytes)) != NULL;
         at = LIST_NEXT(at, next))
        if (fix_pieces(at, address, bytes)) device = at->device;
    return device;
}

void managed_after_fork(void) {
    tdestroy(by_address, free);
    by_address = NULL;
    LIST_INIT(&all);
    atomic_store(&there, 0);
}
