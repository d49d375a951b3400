#include "memory/chunks.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hold.h"
#include "memory/registry.h"

TAILQ_HEAD(chunk_list, chunk);

/* Guarded by LOCK_MEMORY, like all below but what waiters sleep on. */
static struct device_chunks {
    struct chunk_sums sums;
    struct chunk_list to_leave, to_come, back, copied;
} devices[REGISTRY_DEVICES_MAX];
static struct chunk_list staying = TAILQ_HEAD_INITIALIZER(staying); /* their copies have failed */

static size_t chunks_away;   /* PARKED, LEAVING or COMING, on all devices */
static size_t chunks_copies; /* with a host copy that was not confirmed, on all devices */

static uint32_t waiters; /* for the end of a claim */
/* Counts the ends of claims: what waiters sleep on. */
static _Atomic uint32_t settled;
static _Atomic bool stopped; /* the process ends: no claim ends any more */

/* What stays for hardly longer goes with the rest. */
#define TOGETHER_NS (CHUNK_STAYS_NS / 4)

/* ---- waiting ----------------------------------------------------------------------------------
 */

bool chunks_wait_locked(void) {
    waiters++;
    const uint32_t seen = atomic_load(&settled);
    if (!atomic_load(&stopped)) {
        lock_release(LOCK_MEMORY);
        syscall(SYS_futex, &settled, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        lock_take(LOCK_MEMORY);
    }
    waiters--;
    return !atomic_load(&stopped);
}

static void wake_waiters(void) {
    syscall(SYS_futex, &settled, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void chunks_ended_locked(void) {
    const uint32_t ends = atomic_load_explicit(&settled, memory_order_relaxed) + 1;
    atomic_store_explicit(&settled, ends, memory_order_relaxed);
    if (waiters > 0) wake_waiters();
}

/* Without the lock: who holds it may be the thread that ends the process, in a handler. */
void chunks_stop(void) {
    atomic_store(&stopped, true);
    atomic_fetch_add(&settled, 1);
    wake_waiters();
}

/* ---- sums and lists ---------------------------------------------------------------------------
 */

static bool may_move(const struct chunk *chunk) {
    return !chunk->fixed && !chunk->shared && chunk->stays_until_ns == 0;
}

static bool is_parked(const struct chunk *chunk) {
    return chunk->state == CHUNK_PARKED ||
           (chunk->state == CHUNK_CHANGING && chunk->was == CHUNK_PARKED);
}

static bool has_copy(const struct chunk *chunk) {
    return chunk->state == CHUNK_BACK ||
           (chunk->state == CHUNK_CHANGING && chunk->was == CHUNK_BACK);
}

static bool is_moving(const struct chunk *chunk) {
    return chunk->state == CHUNK_LEAVING || chunk->state == CHUNK_COMING;
}

/* Adds (times 1) or takes (times -1) a chunk to or from the sums; unsigned sums wrap as meant. */
static void count(const struct chunk *chunk, int times) {
    struct chunk_sums *sums = &devices[chunk->device].sums;
    const uint64_t bytes = chunk->bytes * (uint64_t)(int64_t)times;
    const uint32_t one = (uint32_t)times;
    const bool moves = may_move(chunk), parked = is_parked(chunk), ours = chunk->managed_at == 0;
    if (chunk->counts_as_off) {
        sums->bytes_parked += bytes;
        if (!ours) sums->bytes_kept += bytes;
    } else {
        sums->bytes_resident += bytes;
        if (moves && !parked && chunk->state != CHUNK_FREEING) {
            sums->bytes_movable += bytes;
            if (!ours) sums->bytes_managed += bytes;
        }
    }
    if (is_moving(chunk) || parked) chunks_away += (size_t)times;
    if (has_copy(chunk)) chunks_copies += (size_t)times;
    switch ((enum chunk_state)chunk->state) {
        case CHUNK_RESIDENT:
            if (moves) sums->to_leave += one;
            if (moves && ours) sums->to_copy += one;
            break;
        case CHUNK_LEAVING:
            sums->bytes_back += bytes; /* fall through */
        case CHUNK_COMING:
            sums->moving += one;
            break;
        case CHUNK_PARKED:
            if (moves) sums->to_come += one;
            break;
        case CHUNK_BACK:
            sums->copies += one;
            if (chunk->copied) sums->copied += one;
            if (!moves) break;
            sums->to_take_back += one;
            sums->bytes_copied += bytes;
            sums->bytes_back += bytes;
            break;
        case CHUNK_CHANGING:
        case CHUNK_FREEING:
            break;
    }
}

/* The list in which a chunk waits to be claimed; NULL for none. */
static struct chunk_list *list_of(const struct chunk *chunk) {
    struct device_chunks *device = &devices[chunk->device];
    if (chunk->state == CHUNK_BACK) /* fixed ones too: they are confirmed */
        return chunk->copied ? &device->copied : &device->back;
    if (chunk->fixed || chunk->shared) return NULL;
    if (chunk->state == CHUNK_RESIDENT)
        return chunk->stays_until_ns != 0 ? &staying : &device->to_leave;
    return chunk->state == CHUNK_PARKED ? &device->to_come : NULL;
}

static void take_out(struct chunk *chunk) {
    struct chunk_list *list = list_of(chunk);
    if (list != NULL) TAILQ_REMOVE(list, chunk, next);
    count(chunk, -1);
}

/* One that is being freed counts for what it was: without a handle it was parked. */
static void put_in(struct chunk *chunk) {
    struct chunk_list *list = list_of(chunk);
    chunk->counts_as_off =
        chunk->handle == 0 && (is_parked(chunk) || chunk->state == CHUNK_FREEING);
    count(chunk, 1);
    if (list == NULL) return;
    if (list->tqh_last == NULL) TAILQ_INIT(list);
    if (chunk->state == chunk->was)
        TAILQ_INSERT_HEAD(list, chunk, next);
    else
        TAILQ_INSERT_TAIL(list, chunk, next);
}

static void change(struct chunk *chunk, enum chunk_state state) {
    take_out(chunk);
    chunk->state = (uint8_t)state;
    if (state != CHUNK_BACK) chunk->copied = false;
    chunk->can_stay = false;
    if (state == CHUNK_PARKED) chunk->failures = 0;
    put_in(chunk);
}

void chunks_enter_locked(struct chunk *chunk) {
    chunk->was = CHUNK_FREEING; /* none that it returns to */
    put_in(chunk);
}

void chunks_leave_locked(struct chunk *chunk) {
    take_out(chunk);
    chunks_ended_locked();
}

/* ---- claims -----------------------------------------------------------------------------------
 */

static struct chunk *first_that_may_move(const struct chunk_list *list) {
    struct chunk *chunk;
    TAILQ_FOREACH(chunk, list, next)
    if (may_move(chunk)) break;
    return chunk;
}

static struct chunk *claim_first(const struct chunk_list *list, enum chunk_state state) {
    struct chunk *chunk = first_that_may_move(list);
    if (chunk == NULL) return NULL;
    chunk->was = chunk->state;
    change(chunk, state);
    return chunk;
}

struct chunk *chunks_claim_leaving_locked(int device) {
    struct chunk *chunk = claim_first(&devices[device].to_leave, CHUNK_LEAVING);
    if (chunk != NULL) chunk->can_stay = true;
    return chunk;
}

struct chunk *chunks_claim_coming_locked(int device) {
    return claim_first(&devices[device].to_come, CHUNK_COMING);
}

struct chunk *chunks_claim_back_locked(int device) {
    struct chunk *chunk = claim_first(&devices[device].back, CHUNK_LEAVING);
    return chunk != NULL ? chunk : claim_first(&devices[device].copied, CHUNK_LEAVING);
}

struct chunk *chunks_claim_copying_locked(int device) {
    struct chunk *chunk;
    TAILQ_FOREACH(chunk, &devices[device].to_leave, next)
    if (chunk->managed_at == 0) break;
    if (chunk == NULL) return NULL;
    chunks_claim_locked(chunk);
    chunk->can_stay = true;
    return chunk;
}

bool chunks_goes(struct chunk *chunk) {
    HOLD(LOCK_MEMORY);
    if (chunk->fixed) return false;
    chunk->can_stay = false;
    return true;
}

void chunks_claim_locked(struct chunk *chunk) {
    chunk->was = chunk->state;
    change(chunk, CHUNK_LEAVING);
}

bool chunks_claim_for_free(struct chunk *chunk) {
    bool claimed = true;
    HOLD(LOCK_MEMORY);
    while (claimed && is_moving(chunk))
        claimed = chunks_wait_locked();
    if (claimed) change(chunk, CHUNK_FREEING);
    return claimed;
}

bool chunks_claim_for_change(struct chunk *chunk) {
    bool claimed = true;
    HOLD(LOCK_MEMORY);
    while (claimed && (is_moving(chunk) || chunk->state == CHUNK_CHANGING))
        claimed = chunks_wait_locked();
    if (claimed && chunk->state != CHUNK_FREEING) { /* then it is lost, and stays so */
        take_out(chunk);
        chunk->was = chunk->state;
        chunk->state = CHUNK_CHANGING;
        put_in(chunk);
    }
    return claimed;
}

void chunks_change_ended_locked(struct chunk *chunk) {
    if (chunk->state != CHUNK_CHANGING) return;
    change(chunk, (enum chunk_state)chunk->was);
    chunks_ended_locked();
}

void chunks_fix_locked(struct chunk *chunk) {
    take_out(chunk);
    chunk->fixed = true;
    put_in(chunk);
}

void chunks_share_locked(struct chunk *chunk, bool shared) {
    take_out(chunk);
    chunk->shared = shared;
    put_in(chunk);
}

static void fix_in(const struct chunk_list *list, const void *context, int device) {
    struct chunk *chunk, *next;
    for (chunk = TAILQ_FIRST(list); chunk != NULL; chunk = next) {
        next = TAILQ_NEXT(chunk, next);
        const bool has_it =
            chunk->context == context || (chunk->context == NULL && chunk->device == device);
        if (has_it && !chunk->fixed) chunks_fix_locked(chunk);
    }
}

void chunks_fix_context(const void *context, int device) {
    HOLD(LOCK_MEMORY);
    fix_in(&staying, context, device);
    for (int i = 0; i < REGISTRY_DEVICES_MAX; i++) {
        fix_in(&devices[i].to_leave, context, device);
        fix_in(&devices[i].back, context, device);
        fix_in(&devices[i].copied, context, device);
    }
}

void chunks_settle(struct chunk *chunk, enum chunk_state state) {
    HOLD(LOCK_MEMORY);
    change(chunk, state);
    chunks_ended_locked();
}

void chunks_settle_copied(struct chunk *chunk) {
    HOLD(LOCK_MEMORY);
    chunk->copied = true;
    chunk->failures = 0;
    change(chunk, CHUNK_BACK);
    chunks_ended_locked();
}

/* ---- copies that failed -----------------------------------------------------------------------
 */

void chunks_settle_fixed(struct chunk *chunk) {
    HOLD(LOCK_MEMORY);
    change(chunk, CHUNK_RESIDENT);
    chunks_fix_locked(chunk);
    chunks_ended_locked();
}

void chunks_settle_failed(struct chunk *chunk, uint64_t now_ns) {
    HOLD(LOCK_MEMORY);
    take_out(chunk);
    chunk->state = CHUNK_RESIDENT;
    chunk->stays_until_ns = now_ns + (CHUNK_STAYS_NS << chunk->failures);
    if (++chunk->failures >= CHUNK_FAILURES_MAX) chunk->fixed = true;
    put_in(chunk);
    chunks_ended_locked();
}

static uint64_t next_let_go_ns(void) {
    uint64_t next_ns = UINT64_MAX;
    const struct chunk *chunk;
    TAILQ_FOREACH(chunk, &staying, next)
    if (chunk->stays_until_ns < next_ns) next_ns = chunk->stays_until_ns;
    return next_ns;
}

bool chunks_let_go(uint64_t now_ns) {
    struct chunk *chunk, *next;
    HOLD(LOCK_MEMORY);
    const bool is_due = next_let_go_ns() <= now_ns;
    for (chunk = TAILQ_FIRST(&staying); is_due && chunk != NULL; chunk = next) {
        next = TAILQ_NEXT(chunk, next);
        if (now_ns + TOGETHER_NS < chunk->stays_until_ns) continue;
        take_out(chunk);
        chunk->stays_until_ns = 0;
        put_in(chunk);
    }
    return is_due;
}

uint64_t chunks_next_let_go_ns(void) {
    HOLD(LOCK_MEMORY);
    return next_let_go_ns();
}

void *chunks_confirm_locked(struct chunk *chunk) {
    void *host = chunk->host;
    chunk->host = NULL;
    change(chunk, CHUNK_RESIDENT);
    return host;
}

/* Host memory is given back without the lock, which that takes. */
static void confirm_all(const struct chunk_list *list, void (*give)(void *host, uint64_t bytes)) {
    for (;;) {
        void *host = NULL;
        uint64_t bytes = 0;
        lock_take(LOCK_MEMORY);
        struct chunk *chunk = TAILQ_FIRST(list);
        if (chunk != NULL) {
            bytes = chunk->bytes;
            host = chunks_confirm_locked(chunk);
        }
        lock_release(LOCK_MEMORY);
        if (chunk == NULL) return;
        give(host, bytes);
    }
}

void chunks_confirm_back(int device, bool copied_alone, void (*give)(void *host, uint64_t bytes)) {
    if (!copied_alone) confirm_all(&devices[device].back, give);
    confirm_all(&devices[device].copied, give);
}

/* ---- looking ----------------------------------------------------------------------------------
 */

bool chunks_source(uint64_t address, const void **host, uint64_t *bytes) {
    HOLD(LOCK_MEMORY);
    const struct mapping *mapping = pages_find(address);
    const bool found = mapping != NULL;
    if (found) {
        const struct chunk *chunk = mapping->chunk;
        const uint64_t offset = address - mapping->address;
        const bool in_host = is_parked(chunk) || chunk->state == CHUNK_COMING;
        *host = in_host && chunk->host != NULL ? (const char *)chunk->host + offset : NULL;
        *bytes = mapping->bytes - offset;
    }
    return found;
}

bool chunks_is_here_locked(const struct chunk *chunk) {
    return !is_moving(chunk) && !is_parked(chunk) && !chunk->counts_as_off;
}

bool chunks_can_stay_locked(const struct chunk *chunk) {
    return chunks_is_here_locked(chunk) || chunk->can_stay;
}

bool chunks_may_leave_locked(const struct chunk *chunk) {
    return may_move(chunk) && (chunk->state == CHUNK_RESIDENT || chunk->state == CHUNK_BACK);
}

struct chunk_sums chunks_sums_locked(int device) {
    if (device < 0 || device >= REGISTRY_DEVICES_MAX) return (struct chunk_sums){0};
    struct chunk_sums sums = devices[device].sums;
    const struct chunk *next = first_that_may_move(&devices[device].to_come);
    if (next != NULL && next->counts_as_off) sums.bytes_next = next->bytes;
    return sums;
}

struct chunk_sums chunks_sums_of(int device) {
    HOLD(LOCK_MEMORY);
    return chunks_sums_locked(device);
}

void *chunks_movable_context(void) {
    const struct chunk *chunk = NULL;
    HOLD(LOCK_MEMORY);
    for (int i = 0; i < REGISTRY_DEVICES_MAX && chunk == NULL; i++)
        chunk = TAILQ_FIRST(&devices[i].to_leave);
    return chunk != NULL ? chunk->context : NULL;
}

bool chunks_all_here(void) {
    HOLD(LOCK_MEMORY);
    return chunks_away == 0;
}

bool chunks_all_confirmed_locked(void) {
    return chunks_away == 0 && chunks_copies == 0;
}

bool chunks_all_confirmed(void) {
    HOLD(LOCK_MEMORY);
    return chunks_all_confirmed_locked();
}

bool chunks_visit_leaving(int device, bool (*look)(const struct chunk *chunk, void *argument),
                          void *argument) {
    const struct chunk *chunk;
    HOLD(LOCK_MEMORY);
    TAILQ_FOREACH(chunk, &devices[device].to_leave, next)
    if (!look(chunk, argument)) break;
    return chunk == NULL;
}

void chunks_after_fork(void) {
    atomic_store(&stopped, false);
    waiters = 0;
    chunks_away = chunks_copies = 0;
    memset(devices, 0, sizeof devices);
    TAILQ_INIT(&staying);
}
