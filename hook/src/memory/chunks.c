#include "memory/chunks.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/locks.h"
#include "memory/registry.h"

/* Sorted by address. All of it is guarded by LOCK_CHUNKS, but for what waiters sleep on. */
static struct chunk *chunks;
static size_t chunks_used;
static _Atomic bool any_chunk; /* so that who has none takes no lock */
static size_t chunks_room;

static struct device_chunks {
    struct chunk_sums sums;
    uint32_t held;
    /* No chunk that could leave, or come, lies below these: a search begins there. */
    uint64_t leaving_from;
    uint64_t coming_from;
} devices[REGISTRY_DEVICES_MAX];

static size_t chunks_away;   /* PARKED, LEAVING or COMING, on all devices */
static size_t chunks_copies; /* with a host copy that was not confirmed, on all devices */

static size_t chunks_staying;     /* their copies have failed; on all devices */
static uint64_t staying_until_ns; /* none of them stays for less */

/* Counts the ends of claims: what those sleep on who wait for one. */
static _Atomic uint32_t settled;
static _Atomic uint32_t waiters;
static _Atomic bool stopped; /* the process ends: no claim ends any more */

/* What stays for hardly longer goes with the rest. */
#define TOGETHER_NS (CHUNK_STAYS_NS / 4)

#define BATCH 64

/* ---- waiting ----------------------------------------------------------------------------------
 */

/* Called with LOCK_CHUNKS held, which is not held while it waits. False: nobody ends claims now. */
static bool wait_for_settling(void) {
    atomic_fetch_add(&waiters, 1);
    const uint32_t seen = atomic_load(&settled);
    if (atomic_load(&stopped)) {
        atomic_fetch_sub(&waiters, 1);
        return false;
    }
    lock_release(LOCK_CHUNKS);
    syscall(SYS_futex, &settled, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    lock_take(LOCK_CHUNKS);
    atomic_fetch_sub(&waiters, 1);
    return !atomic_load(&stopped);
}

static void wake_waiters(void) {
    atomic_fetch_add(&settled, 1);
    if (atomic_load(&waiters) > 0)
        syscall(SYS_futex, &settled, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void chunks_stop(void) {
    atomic_store(&stopped, true);
    wake_waiters();
}

/* ---- the table --------------------------------------------------------------------------------
 */

/* The first chunk at this address or above. */
static size_t first_from(uint64_t address) {
    size_t low = 0, high = chunks_used;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (chunks[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool may_move(const struct chunk *chunk) {
    return !chunk->fixed && chunk->stays_until_ns == 0;
}

static bool is_moving(const struct chunk *chunk) {
    return chunk->state == CHUNK_LEAVING || chunk->state == CHUNK_COMING;
}

static bool is_away(const struct chunk *chunk) {
    return is_moving(chunk) || chunk->state == CHUNK_PARKED;
}

/* One that is being freed counts for what it was: without a handle it was parked. */
static bool is_off_the_device(const struct chunk *chunk) {
    return chunk->handle == 0 && (chunk->state == CHUNK_PARKED || chunk->state == CHUNK_FREEING);
}

/* A chunk is held as what it was: with host memory it was BACK. */
static bool is_or_was(const struct chunk *chunk, enum chunk_state state) {
    return chunk->state == state ||
           (chunk->state == CHUNK_HELD && (state == CHUNK_BACK) == (chunk->host != NULL));
}

/* By the same words as the claims find them (find_movable). */
static void count_claimable(const struct chunk *chunk, int times) {
    struct chunk_sums *sums = &devices[chunk->device].sums;
    const uint32_t one = (uint32_t)times;
    if (is_or_was(chunk, CHUNK_BACK)) {
        sums->copies += one;
        chunks_copies += (size_t)times;
    }
    if (!may_move(chunk)) return;
    if (is_or_was(chunk, CHUNK_RESIDENT)) sums->to_leave += one;
    if (is_or_was(chunk, CHUNK_BACK)) sums->to_take_back += one;
    if (chunk->state == CHUNK_PARKED) sums->to_come += one;
}

/* Adds (times 1) or takes (times -1) a chunk to or from the sums; unsigned sums wrap as meant. */
static void count(const struct chunk *chunk, int times) {
    struct device_chunks *device = &devices[chunk->device];
    const uint64_t bytes = chunk->bytes * (uint64_t)(int64_t)times;
    const bool off = is_off_the_device(chunk);
    count_claimable(chunk, times);
    if (off && chunk->state == CHUNK_PARKED) device->sums.bytes_to_come += bytes;
    if (off)
        device->sums.bytes_parked += bytes;
    else
        device->sums.bytes_resident += bytes;
    if (!off && may_move(chunk) && chunk->state != CHUNK_FREEING && chunk->state != CHUNK_PARKED)
        device->sums.bytes_movable += bytes;
    if (chunk->stays_until_ns != 0) chunks_staying += (size_t)times;
    if (is_moving(chunk)) device->sums.moving += (uint32_t)times;
    if (chunk->state == CHUNK_HELD) device->held += (uint32_t)times;
    if (is_away(chunk)) chunks_away += (size_t)times;
}

static void begin_search_no_later(const struct chunk *chunk) {
    struct device_chunks *device = &devices[chunk->device];
    if (chunk->state == CHUNK_RESIDENT && chunk->address < device->leaving_from)
        device->leaving_from = chunk->address;
    if (chunk->state == CHUNK_PARKED && chunk->address < device->coming_from)
        device->coming_from = chunk->address;
}

static void change(struct chunk *chunk, enum chunk_state state, uint64_t handle, void *host) {
    count(chunk, -1);
    chunk->state = (uint8_t)state;
    chunk->handle = handle;
    chunk->host = host;
    chunk->unmapped = false;
    if (state == CHUNK_PARKED) chunk->failures = 0;
    count(chunk, 1);
    begin_search_no_later(chunk);
}

static void claim(struct chunk *chunk, enum chunk_state state, struct chunk *out) {
    const bool unmapped = chunk->unmapped;
    change(chunk, state, chunk->handle, chunk->host);
    chunk->unmapped = unmapped;
    *out = *chunk;
}

bool chunks_add(const struct chunk *added, size_t added_count) {
    lock_take(LOCK_CHUNKS);
    const bool fits = ARRAY_MAKE_ROOM(chunks, chunks_used, added_count, chunks_room);
    if (fits && added_count > 0) {
        /* They lie one behind the other, in a range in which there is nothing else. */
        const size_t at = first_from(added->address);
        memmove(&chunks[at + added_count], &chunks[at], (chunks_used - at) * sizeof *chunks);
        memcpy(&chunks[at], added, added_count * sizeof *chunks);
        chunks_used += added_count;
        atomic_store(&any_chunk, true);
        for (size_t i = at; i < at + added_count; i++) {
            count(&chunks[i], 1);
            begin_search_no_later(&chunks[i]);
        }
    }
    lock_release(LOCK_CHUNKS);
    return fits;
}

void chunks_remove(uint64_t address, uint64_t bytes) {
    lock_take(LOCK_CHUNKS);
    const size_t from = first_from(address), to = first_from(address + bytes);
    for (size_t i = from; i < to; i++)
        count(&chunks[i], -1);
    if (to > from) {
        memmove(&chunks[from], &chunks[to], (chunks_used - to) * sizeof *chunks);
        chunks_used -= to - from;
        atomic_store(&any_chunk, chunks_used > 0);
    }
    wake_waiters();
    lock_release(LOCK_CHUNKS);
}

/* ---- claims -----------------------------------------------------------------------------------
 */

size_t chunks_claim_for_free(uint64_t address, uint64_t bytes, struct chunk *out, size_t max) {
    size_t claimed = 0;
    lock_take(LOCK_CHUNKS);
    for (uint64_t at = address; claimed < max;) {
        const size_t i = first_from(at); /* anew after a wait: the table may have moved */
        if (i >= chunks_used || chunks[i].address >= address + bytes) break;
        if (is_moving(&chunks[i]) || chunks[i].state == CHUNK_HELD) {
            if (!wait_for_settling()) break;
            continue;
        }
        at = chunks[i].address + chunks[i].bytes;
        claim(&chunks[i], CHUNK_FREEING, &out[claimed++]);
    }
    lock_release(LOCK_CHUNKS);
    return claimed;
}

bool chunks_fix(uint64_t address, uint64_t bytes) {
    lock_take(LOCK_CHUNKS);
    const size_t from = first_from(address), to = first_from(address + bytes);
    bool all_here = true;
    for (size_t i = from; i < to; i++)
        if (is_away(&chunks[i]) || is_off_the_device(&chunks[i])) all_here = false;
    for (size_t i = from; all_here && i < to; i++) {
        count(&chunks[i], -1);
        chunks[i].fixed = true;
        count(&chunks[i], 1);
    }
    lock_release(LOCK_CHUNKS);
    return all_here;
}

/* The first chunk of the device, from this address on, in this state, that may move. */
static struct chunk *find_movable(int device, uint64_t from, enum chunk_state state) {
    for (size_t i = first_from(from); i < chunks_used; i++)
        if (chunks[i].device == device && chunks[i].state == state && may_move(&chunks[i]))
            return &chunks[i];
    return NULL;
}

bool chunks_claim_leaving(int device, struct chunk *out) {
    struct device_chunks *on = &devices[device];
    lock_take(LOCK_CHUNKS);
    struct chunk *chunk;
    for (;;) {
        chunk = find_movable(device, on->leaving_from, CHUNK_RESIDENT);
        if (chunk != NULL || on->held == 0) break;
        if (!wait_for_settling()) break; /* for a moment: the holder is in one call of the driver */
    }
    on->leaving_from = chunk != NULL ? chunk->address + chunk->bytes : UINT64_MAX;
    if (chunk != NULL) claim(chunk, CHUNK_LEAVING, out);
    lock_release(LOCK_CHUNKS);
    return chunk != NULL;
}

bool chunks_claim_coming(int device, struct chunk *out) {
    struct device_chunks *on = &devices[device];
    lock_take(LOCK_CHUNKS);
    struct chunk *chunk = find_movable(device, on->coming_from, CHUNK_PARKED);
    on->coming_from = chunk != NULL ? chunk->address + chunk->bytes : UINT64_MAX;
    if (chunk != NULL) claim(chunk, CHUNK_COMING, out);
    lock_release(LOCK_CHUNKS);
    return chunk != NULL;
}

bool chunks_claim_back(int device, struct chunk *out) {
    lock_take(LOCK_CHUNKS);
    struct chunk *chunk;
    while ((chunk = find_movable(device, 0, CHUNK_BACK)) == NULL && devices[device].held > 0)
        if (!wait_for_settling()) break;
    if (chunk != NULL) claim(chunk, CHUNK_LEAVING, out);
    lock_release(LOCK_CHUNKS);
    return chunk != NULL;
}

bool chunks_hold_next(int device, uint64_t *from, struct chunk *out, enum chunk_state *was) {
    bool found = false;
    lock_take(LOCK_CHUNKS);
    while (!found) {
        const size_t i = first_from(*from);
        if (i >= chunks_used) break;
        struct chunk *chunk = &chunks[i];
        const bool ours = chunk->device == device;
        if (ours && (is_moving(chunk) || chunk->state == CHUNK_HELD)) {
            if (!wait_for_settling()) break;
            continue;
        }
        *from = chunk->address + chunk->bytes;
        found = ours && (chunk->state == CHUNK_RESIDENT || chunk->state == CHUNK_BACK);
        if (!found) continue;
        *was = (enum chunk_state)chunk->state;
        claim(chunk, CHUNK_HELD, out);
    }
    lock_release(LOCK_CHUNKS);
    return found;
}

void chunks_settle(uint64_t address, enum chunk_state state, uint64_t handle, void *host) {
    lock_take(LOCK_CHUNKS);
    const size_t i = first_from(address);
    if (i < chunks_used && chunks[i].address == address) change(&chunks[i], state, handle, host);
    wake_waiters();
    lock_release(LOCK_CHUNKS);
}

void chunks_settle_away(const struct chunk *settled, enum chunk_state state) {
    lock_take(LOCK_CHUNKS);
    const size_t i = first_from(settled->address);
    if (i < chunks_used && chunks[i].address == settled->address) {
        change(&chunks[i], state, settled->handle, settled->host);
        chunks[i].unmapped = settled->unmapped;
    }
    wake_waiters();
    lock_release(LOCK_CHUNKS);
}

/* ---- copies that failed -----------------------------------------------------------------------
 */

static void stay(struct chunk *chunk, uint64_t now_ns) {
    const uint64_t until_ns = now_ns + (CHUNK_STAYS_NS << chunk->failures);
    count(chunk, -1);
    if (++chunk->failures >= CHUNK_FAILURES_MAX) {
        chunk->fixed = true;
    } else {
        if (chunks_staying == 0 || until_ns < staying_until_ns) staying_until_ns = until_ns;
        chunk->stays_until_ns = until_ns;
    }
    count(chunk, 1);
}

void chunks_settle_failed(uint64_t address, uint64_t handle, uint64_t now_ns) {
    lock_take(LOCK_CHUNKS);
    const size_t i = first_from(address);
    if (i < chunks_used && chunks[i].address == address) {
        change(&chunks[i], CHUNK_RESIDENT, handle, NULL);
        stay(&chunks[i], now_ns);
    }
    wake_waiters();
    lock_release(LOCK_CHUNKS);
}

static void let_go(struct chunk *chunk) {
    count(chunk, -1);
    chunk->stays_until_ns = 0;
    count(chunk, 1);
    begin_search_no_later(chunk);
}

bool chunks_let_go(uint64_t now_ns) {
    bool any = false;
    uint64_t next_ns = UINT64_MAX;
    lock_take(LOCK_CHUNKS);
    const bool is_due = chunks_staying > 0 && now_ns >= staying_until_ns;
    for (size_t i = 0; is_due && i < chunks_used; i++) {
        if (chunks[i].stays_until_ns == 0) continue;
        if (now_ns + TOGETHER_NS >= chunks[i].stays_until_ns) {
            any = any || !chunks[i].fixed;
            let_go(&chunks[i]);
        } else if (chunks[i].stays_until_ns < next_ns) {
            next_ns = chunks[i].stays_until_ns;
        }
    }
    if (is_due) staying_until_ns = next_ns;
    lock_release(LOCK_CHUNKS);
    return any;
}

uint64_t chunks_next_let_go_ns(void) {
    lock_take(LOCK_CHUNKS);
    const uint64_t next_ns = chunks_staying > 0 ? staying_until_ns : UINT64_MAX;
    lock_release(LOCK_CHUNKS);
    return next_ns;
}

/* Host memory is given back without the lock, since that may call the driver. */
void chunks_confirm_back(int device, void (*give)(void *host, uint64_t bytes)) {
    struct chunk confirmed[BATCH];
    size_t confirmed_count;
    uint64_t from = 0;
    do {
        confirmed_count = 0;
        lock_take(LOCK_CHUNKS);
        while (devices[device].held > 0) /* it is settled back to what it was */
            if (!wait_for_settling()) break;
        size_t i = first_from(from);
        for (; i < chunks_used && confirmed_count < BATCH; i++) {
            if (chunks[i].device != device || chunks[i].state != CHUNK_BACK) continue;
            confirmed[confirmed_count++] = chunks[i];
            change(&chunks[i], CHUNK_RESIDENT, chunks[i].handle, NULL);
        }
        if (i < chunks_used) from = chunks[i].address;
        lock_release(LOCK_CHUNKS);
        for (size_t j = 0; j < confirmed_count; j++)
            give(confirmed[j].host, confirmed[j].bytes);
    } while (confirmed_count == BATCH);
}

/* ---- looking ----------------------------------------------------------------------------------
 */

bool chunks_source(uint64_t address, const void **host, uint64_t *bytes) {
    lock_take(LOCK_CHUNKS);
    const size_t behind = first_from(address + 1);
    const struct chunk *chunk = behind > 0 ? &chunks[behind - 1] : NULL;
    const bool found = chunk != NULL && address - chunk->address < chunk->bytes;
    if (found) {
        const uint64_t offset = address - chunk->address;
        const bool in_host = chunk->state == CHUNK_PARKED || chunk->state == CHUNK_COMING;
        *host = in_host ? (const char *)chunk->host + offset : NULL;
        *bytes = chunk->bytes - offset;
    }
    lock_release(LOCK_CHUNKS);
    return found;
}

struct chunk_sums chunks_sums_of(int device) {
    struct chunk_sums sums = {0};
    if (device < 0 || device >= REGISTRY_DEVICES_MAX) return sums;
    lock_take(LOCK_CHUNKS);
    sums = devices[device].sums;
    lock_release(LOCK_CHUNKS);
    return sums;
}

void *chunks_movable_context(void) {
    void *context = NULL;
    lock_take(LOCK_CHUNKS);
    for (size_t i = 0; i < chunks_used && context == NULL; i++)
        if (may_move(&chunks[i]) && chunks[i].state == CHUNK_RESIDENT) context = chunks[i].context;
    lock_release(LOCK_CHUNKS);
    return context;
}

bool chunks_are_there(void) {
    return atomic_load_explicit(&any_chunk, memory_order_acquire);
}

bool chunks_all_here(void) {
    lock_take(LOCK_CHUNKS);
    const bool all_here = chunks_away == 0;
    lock_release(LOCK_CHUNKS);
    return all_here;
}

bool chunks_all_confirmed(void) {
    lock_take(LOCK_CHUNKS);
    const bool all_confirmed = chunks_away == 0 && chunks_copies == 0;
    lock_release(LOCK_CHUNKS);
    return all_confirmed;
}

void chunks_visit(int device, void (*look)(const struct chunk *chunk, void *argument),
                  void *argument) {
    lock_take(LOCK_CHUNKS);
    for (size_t i = 0; i < chunks_used; i++)
        if (chunks[i].device == device) look(&chunks[i], argument);
    lock_release(LOCK_CHUNKS);
}

void chunks_after_fork(void) {
    atomic_store(&stopped, false);
    chunks_used = 0;
    atomic_store(&any_chunk, false);
    chunks_away = chunks_copies = chunks_staying = 0;
    memset(devices, 0, sizeof devices);
    atomic_store(&waiters, 0);
}
