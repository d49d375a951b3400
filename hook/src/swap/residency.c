#include "swap/residency.h"

#include <stdlib.h>
#include <string.h>

#include "agent/messages.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/options.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "device/failure.h"
#include "memory/chunks.h"
#include "memory/registry.h"
#include "swap/host_arena.h"
#include "swap/room.h"

enum mode {
    MODE_OFF,     /* memory stays where the driver puts it; so too where there is no agent */
    MODE_UNTOLD,  /* the scheduler has not said: as if it followed the turn, but without limits */
    MODE_FOLLOWS, /* memory follows the turn */
};

/* A thread that waits in residency_claim; it lies on that thread's stack. */
struct waiter {
    struct waiter *next;
    uint32_t number; /* of its need */
    uint64_t bytes;
    const char *call_name;
    bool refused;
};

static struct device_residency {
    uint32_t serial; /* of the latest budget on this connection; 0: none */
    uint64_t budget_bytes, usable_bytes, park_hint_bytes;
    uint8_t ahead; /* enum ahead */
    bool cannot_copy;
    uint64_t waiting_bytes; /* claimed in the registry by threads that wait here or at the gate */
    struct waiter *first;   /* oldest first */
} devices[REGISTRY_DEVICES_MAX]; /* guarded by LOCK_MEMORY, like all below */
static bool turn_is_open;
static bool is_unlimited; /* no scheduler, and the fallback is to run */
static uint32_t last_number;
static int devices_used; /* ordinals below it were asked for */
/* Read without the lock too, to spare it. */
static _Atomic enum mode mode;
static _Atomic uint32_t reclaim_ms;
static _Atomic(const char *) why_it_stays; /* NULL: memory may be parked; a child keeps it */
static _Atomic uint32_t waiters;

/* ---- counting; with LOCK_MEMORY held -------------------------------------------------------
 */

static struct device_residency *of(int device) {
    for (; devices_used <= device; devices_used++)
        devices[devices_used].budget_bytes = devices[devices_used].usable_bytes =
            RESIDENCY_UNLIMITED;
    return &devices[device];
}

static bool is_counted(int device) {
    return device >= 0 && device < REGISTRY_DEVICES_MAX;
}

static uint64_t less(uint64_t bytes, uint64_t other_bytes) {
    return bytes > other_bytes ? bytes - other_bytes : 0;
}

static uint64_t least(uint64_t bytes, uint64_t other_bytes) {
    return bytes < other_bytes ? bytes : other_bytes;
}

/* Claims that do not wait and have not ended: their calls are on their way. */
static uint64_t claimed_bytes(int device, const struct registry_sums *sums) {
    return less(sums->bytes_claimed, of(device)->waiting_bytes);
}

/* All that the process has or is about to have, wherever it is. */
static uint64_t owned_bytes(int device) {
    const struct registry_sums sums = registry_sums_locked(device);
    return sums.bytes_allocated + claimed_bytes(device, &sums);
}

static uint64_t resident_bytes(int device) {
    return less(owned_bytes(device), chunks_sums_locked(device).bytes_parked);
}

static uint64_t budget_of(int device) {
    return mode == MODE_FOLLOWS && !is_unlimited ? of(device)->budget_bytes : RESIDENCY_UNLIMITED;
}

static void waits_no_more(int device, uint64_t bytes) {
    of(device)->waiting_bytes = less(of(device)->waiting_bytes, bytes);
}

/* While the turn is open nothing is parked, so all that is owned is on the device. */
static bool fits(int device, uint64_t bytes) {
    const uint64_t used_bytes = owned_bytes(device), budget_bytes = budget_of(device);
    return used_bytes <= budget_bytes && bytes <= budget_bytes - used_bytes;
}

/* Whether a waiting claim may go on; REFUSED: not now. */
static enum residency_answer admit(int device, uint64_t bytes, bool needs_turn, bool is_beyond) {
    if (!is_beyond) {
        if (mode == MODE_OFF) return RESIDENCY_AT_GATE;
        if (needs_turn && !turn_is_open && !is_unlimited) return RESIDENCY_REFUSED;
        if (!fits(device, bytes)) return RESIDENCY_REFUSED;
    }
    waits_no_more(device, bytes);
    return RESIDENCY_FITS;
}

/* ---- claims -----------------------------------------------------------------------------------
 */

struct claim {
    int device;
    uint64_t looks_before;
    bool queued;
    enum residency_answer answer; /* by the latest look */
    struct waiter waiter;
};

static void queue(struct claim *claim) {
    struct waiter **end = &of(claim->device)->first;
    while (*end)
        end = &(*end)->next;
    claim->queued = true;
    if (++last_number == 0) last_number = 1; /* 0 is no need's */
    claim->waiter.number = last_number;
    *end = &claim->waiter;
    atomic_fetch_add(&waiters, 1);
}

static void leave_queue(struct claim *claim) {
    if (!claim->queued) return;
    struct waiter **place = &of(claim->device)->first;
    while (*place && *place != &claim->waiter)
        place = &(*place)->next;
    if (*place == NULL) return;
    *place = claim->waiter.next;
    atomic_fetch_sub(&waiters, 1);
}

/* Calls that will only answer with an error, or that libraries make while the process ends. */
static bool is_beyond_limits(void) {
    return ending_has_begun() || failure_in_current_context();
}

/* The need is told from within the wait, so that no cancellation that follows comes too early. */
static bool may_go_on(void *argument) {
    struct claim *claim = argument;
    const bool is_beyond = wait_looks() != claim->looks_before && is_beyond_limits();
    lock_take(LOCK_MEMORY);
    const bool refused = claim->waiter.refused;
    claim->answer =
        refused ? RESIDENCY_REFUSED : admit(claim->device, claim->waiter.bytes, true, is_beyond);
    const bool goes_on = refused || claim->answer != RESIDENCY_REFUSED;
    if (claim->answer == RESIDENCY_FITS) locks_signals_wait();
    const bool begins = !goes_on && !claim->queued;
    if (begins) queue(claim);
    lock_release(LOCK_MEMORY);
    if (begins) bell_ring(NEWS_NEEDS_CHANGED);
    return goes_on;
}

/* What this thread waits with, apart from its stack: a handler of SIGINT may leave the wait by a
 * jump, and never come back to it. It ends with its claim then. */
static _Thread_local struct claim *waiting __attribute__((tls_model("initial-exec")));

static void end_wait(void) {
    lock_take(LOCK_MEMORY);
    leave_queue(waiting);
    lock_release(LOCK_MEMORY);
    bell_ring(NEWS_NEEDS_CHANGED);
    free(waiting);
    waiting = NULL;
}

/* The claim counts as waiting; it does no more when it fits. A signal whose handler may jump finds
 * none that fits: nobody would end it, and the turn could not go. Such a signal cancels the wait.
 */
static enum residency_answer wait_for_budget(struct claim *claim) {
    const struct wait_condition condition = {
        .holds = may_go_on,
        .argument = claim,
        .until_ns = UINT64_MAX,
        .wants_turn = true,
    };
    const bool goes_on = wait_for(&condition, claim->waiter.call_name);
    enum residency_answer answer = goes_on ? claim->answer : RESIDENCY_CANCELLED;
    const bool fits = answer == RESIDENCY_FITS;
    if (fits && locks_signal_waits()) {
        lock_take(LOCK_MEMORY);
        of(claim->device)->waiting_bytes += claim->waiter.bytes;
        lock_release(LOCK_MEMORY);
        answer = RESIDENCY_CANCELLED;
    }
    end_wait();
    if (fits) locks_signals_come();
    return answer;
}

/* Starts to count a claim as waiting, and looks whether it has to. */
static enum residency_answer answer_at_once(int device, uint64_t bytes, bool inside) {
    lock_take(LOCK_MEMORY);
    of(device)->waiting_bytes += bytes;
    const enum residency_answer answer = admit(device, bytes, !inside, false);
    lock_release(LOCK_MEMORY);
    /* Until the claim counted as waiting it took room: others that fit beside it may have been made
     * to wait. */
    if (answer != RESIDENCY_FITS && atomic_load(&waiters) > 0) wait_wake_all();
    return answer;
}

enum residency_answer residency_claim_again(int device, uint64_t bytes, const char *call_name) {
    enum residency_answer answer = RESIDENCY_REFUSED;
    waiting = malloc(sizeof *waiting);
    if (waiting != NULL) {
        *waiting = (struct claim){.device = device,
                                  .looks_before = wait_looks() - 1, /* the first look asks */
                                  .waiter = {.bytes = bytes, .call_name = call_name}};
        answer = wait_for_budget(waiting);
    }
    if (answer == RESIDENCY_REFUSED)
        log_info("%s of %llu bytes on device %d refused: there is no room for it", call_name,
                 (unsigned long long)bytes, device);
    return answer;
}

enum residency_answer residency_claim(int device, uint64_t bytes, const char *call_name,
                                      bool inside) {
    if (!is_counted(device)) return RESIDENCY_AT_GATE;
    if (!inside && !bell_is_heard()) bell_start_agent(call_name);
    const enum residency_answer answer = answer_at_once(device, bytes, inside);
    if (inside || answer != RESIDENCY_REFUSED) return answer;
    /* Only now, since it asks the driver: a context that we do not know yet has no budget. */
    void *context;
    if (contexts_know_current(&context) && !is_beyond_limits())
        return residency_claim_again(device, bytes, call_name);
    residency_claim_passed(device, bytes);
    return RESIDENCY_FITS;
}

void residency_claim_passed(int device, uint64_t bytes) {
    HOLD(LOCK_MEMORY);
    if (is_counted(device)) waits_no_more(device, bytes);
}

void residency_unclaim(int device, uint64_t bytes, bool waits) {
    if (waiting != NULL) end_wait();
    HOLD(LOCK_MEMORY);
    registry_unclaim_locked(device, bytes);
    if (waits && is_counted(device)) waits_no_more(device, bytes);
}

uint64_t residency_claims_out(void) {
    uint64_t bytes = 0;
    HOLD(LOCK_MEMORY);
    for (int device = 0; device < devices_used; device++) {
        const struct registry_sums sums = registry_sums_locked(device);
        bytes += claimed_bytes(device, &sums);
    }
    return bytes;
}

/* ---- room -------------------------------------------------------------------------------------
 */

bool residency_suspend_claim(int device, uint64_t claimed_bytes) {
    if (!is_counted(device) || is_beyond_limits()) return false;
    HOLD(LOCK_MEMORY);
    const bool follows = mode == MODE_FOLLOWS && !is_unlimited;
    if (follows) of(device)->waiting_bytes += claimed_bytes;
    return follows;
}

bool residency_suspended_fits(int device, uint64_t claimed_bytes) {
    HOLD(LOCK_MEMORY);
    return fits(device, claimed_bytes);
}

bool residency_is_told(void) {
    return atomic_load(&mode) != MODE_UNTOLD;
}

uint32_t residency_reclaim_ms(void) {
    return atomic_load(&reclaim_ms);
}

/* ---- for the mover ----------------------------------------------------------------------------
 */

static uint64_t free_bytes(int device) {
    const uint64_t budget_bytes = budget_of(device), used_bytes = resident_bytes(device);
    return budget_bytes == RESIDENCY_UNLIMITED ? budget_bytes : less(budget_bytes, used_bytes);
}

uint64_t residency_bytes_free(int device) {
    HOLD(LOCK_MEMORY);
    return free_bytes(device);
}

struct chunk *residency_claim_locked(int device) {
    const bool fits = chunks_sums_locked(device).bytes_next <= free_bytes(device);
    return fits ? chunks_claim_coming_locked(device) : NULL;
}

uint64_t residency_bytes_over(int device) {
    HOLD(LOCK_MEMORY);
    const uint64_t over_bytes = less(resident_bytes(device), budget_of(device));
    return why_it_stays != NULL ? 0 : over_bytes;
}

uint64_t residency_park_hint(void) {
    uint64_t bytes = 0;
    HOLD(LOCK_MEMORY);
    for (int device = 0; device < devices_used && mode == MODE_FOLLOWS && !why_it_stays; device++)
        bytes += less(of(device)->park_hint_bytes, chunks_sums_locked(device).bytes_parked);
    return bytes;
}

/* From any device: a copy ahead of need would take the places of those that are waited for. */
static bool some_has_to_leave(void) {
    bool some = false;
    for (int device = 0; device < devices_used && !some; device++)
        some = resident_bytes(device) > budget_of(device) &&
               chunks_sums_locked(device).bytes_movable > 0;
    return some;
}

/* What is on its way out counts as copied. */
static uint64_t bytes_worth_a_copy(int device, const struct chunk_sums *chunks) {
    const bool may_copy = mode == MODE_FOLLOWS && !why_it_stays && !turn_is_open;
    if (!may_copy || of(device)->cannot_copy || some_has_to_leave()) return 0;
    return less(of(device)->park_hint_bytes, chunks->bytes_parked + chunks->bytes_back);
}

uint64_t residency_bytes_to_copy(int device) {
    HOLD(LOCK_MEMORY);
    const struct chunk_sums chunks = chunks_sums_locked(device);
    return of(device)->ahead == AHEAD_COPIES ? bytes_worth_a_copy(device, &chunks) : 0;
}

bool residency_copies_are_of_use(int device) {
    HOLD(LOCK_MEMORY);
    return mode == MODE_FOLLOWS && !why_it_stays && of(device)->park_hint_bytes > 0;
}

static bool goes_ahead(int device, enum ahead what) {
    HOLD(LOCK_MEMORY);
    return mode == MODE_FOLLOWS && !why_it_stays && !turn_is_open && of(device)->ahead == what;
}

bool residency_copies_ahead(int device) {
    return goes_ahead(device, AHEAD_COPIES);
}

bool residency_comes_ahead(int device) {
    return goes_ahead(device, AHEAD_RESTORE);
}

void residency_cannot_copy(int device) {
    HOLD(LOCK_MEMORY);
    of(device)->cannot_copy = !turn_is_open; /* which may have begun meanwhile */
}

/* ---- for the agent ----------------------------------------------------------------------------
 */

void residency_start(void) {
    mode = options_get()->memory == MEMORY_OFF ? MODE_OFF : MODE_UNTOLD;
}

void residency_set_mode(bool swap, uint32_t wanted_reclaim_ms) {
    const uint32_t choice = options_get()->memory;
    if (choice != MEMORY_AS_SCHEDULED) swap = choice == MEMORY_SWAP;
    swap = swap && driver_can_move(driver_get());
    lock_take(LOCK_MEMORY);
    mode = swap ? MODE_FOLLOWS : MODE_OFF;
    reclaim_ms = wanted_reclaim_ms;
    lock_release(LOCK_MEMORY);
    wait_wake_all();
}

bool residency_swaps(void) {
    return atomic_load(&mode) != MODE_OFF;
}

void residency_stop_parking(const char *why) {
    const char *none = NULL;
    if (!atomic_compare_exchange_strong(&why_it_stays, &none, why)) return;
    log_error(
        "%s Until the process ends, its GPU memory stays on the device, also while others "
        "have their turn.",
        why);
    bell_ring(NEWS_MEMORY_MOVED);
}

const char *residency_why_it_stays(void) {
    return atomic_load(&why_it_stays);
}

void residency_set_turn(bool open, bool unlimited) {
    HOLD(LOCK_MEMORY);
    turn_is_open = open;
    for (int device = 0; device < devices_used && open; device++)
        devices[device].cannot_copy = false;
    is_unlimited = open && unlimited;
}

/* It may have ended meanwhile, by an interrupt say. */
static void take_refusal(struct device_residency *of_device, uint32_t number) {
    for (struct waiter *waiter = of_device->first; waiter; waiter = waiter->next)
        if (waiter->number == number) waiter->refused = true;
}

void residency_set_budget(const uint8_t uuid[16], const struct residency_budget *told) {
    int device = 0;
    if (!devices_ordinal_of(uuid, &device) || !is_counted(device)) return;
    lock_take(LOCK_MEMORY);
    struct device_residency *residency = of(device);
    residency->serial = told->serial;
    residency->budget_bytes = told->budget_bytes;
    residency->usable_bytes = told->usable_bytes;
    residency->park_hint_bytes = told->park_hint_bytes;
    residency->ahead = told->ahead;
    if (told->refused_need != 0) take_refusal(residency, told->refused_need);
    lock_release(LOCK_MEMORY);
    if (atomic_load(&waiters) > 0) wait_wake_all();
}

/* What is on the devices may stay there, and nothing more may come. */
static void keep_to_what_is_there(bool forget_serials) {
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    for (int i = 0; i < count; i++) {
        const int device = ordinals[i];
        if (!is_counted(device)) continue;
        lock_take(LOCK_MEMORY);
        if (forget_serials) of(device)->serial = 0;
        of(device)->budget_bytes = resident_bytes(device);
        of(device)->ahead = AHEAD_NOTHING;
        lock_release(LOCK_MEMORY);
    }
}

void residency_turn_dropped(void) {
    keep_to_what_is_there(false);
}

void residency_connection_lost(void) {
    keep_to_what_is_there(true);
}

struct residency_need residency_need_of(int device) {
    const struct residency_need none = {0};
    if (!is_counted(device)) return none;
    HOLD(LOCK_MEMORY);
    const struct waiter *first = of(device)->first;
    if (first == NULL || mode != MODE_FOLLOWS) return none;
    return (struct residency_need){first->number, first->bytes, first->call_name};
}

void residency_memory_changed(void) {
    if (atomic_load(&waiters) > 0) wait_wake_all();
}

static struct residency_numbers numbers_of(int device) {
    struct residency_numbers numbers = {.budget_bytes = RESIDENCY_UNLIMITED};
    HOLD(LOCK_MEMORY);
    const struct chunk_sums chunks = chunks_sums_locked(device);
    const uint64_t ours_bytes = chunks.bytes_movable - chunks.bytes_managed;
    numbers.bytes_to_copy =
        least(bytes_worth_a_copy(device, &chunks), less(ours_bytes, chunks.bytes_back));
    numbers.bytes_allocated = owned_bytes(device);
    numbers.bytes_parked = chunks.bytes_parked;
    numbers.bytes_kept = chunks.bytes_kept;
    numbers.bytes_resident = resident_bytes(device);
    numbers.bytes_copied = chunks.bytes_copied;
    if (why_it_stays)
        numbers.bytes_fixed = numbers.bytes_resident;
    else
        numbers.bytes_fixed = mode == MODE_OFF ? registry_sums_locked(device).bytes_fixed
                                               : less(numbers.bytes_resident, chunks.bytes_movable);
    numbers.budget_bytes = budget_of(device);
    numbers.serial = of(device)->serial;
    return numbers;
}

struct residency_numbers residency_numbers_of(int device) {
    if (!is_counted(device)) return (struct residency_numbers){.budget_bytes = RESIDENCY_UNLIMITED};
    struct residency_numbers numbers = numbers_of(device);
    if (numbers.bytes_to_copy > 0)
        numbers.bytes_to_copy = least(numbers.bytes_to_copy, host_arena_free());
    return numbers;
}

uint64_t residency_usable(int device) {
    if (!is_counted(device)) return RESIDENCY_UNLIMITED;
    HOLD(LOCK_MEMORY);
    return mode == MODE_FOLLOWS ? of(device)->usable_bytes : RESIDENCY_UNLIMITED;
}

void residency_after_fork(void) {
    memset(devices, 0, sizeof(devices));
    devices_used = 0;
    mode = MODE_OFF;
    turn_is_open = is_unlimited = false;
    atomic_store(&waiters, 0);
}
