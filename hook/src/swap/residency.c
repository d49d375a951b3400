#include "swap/residency.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/locks.h"
#include "base/log.h"
#include "base/options.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "device/failure.h"
#include "memory/chunks.h"
#include "memory/registry.h"
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
    uint64_t waiting_bytes;      /* claimed in the registry by threads that wait here */
    struct waiter *first;        /* oldest first */
} devices[REGISTRY_DEVICES_MAX]; /* guarded by LOCK_RESIDENCY, like all below */
static enum mode mode;
static bool turn_is_open;
static bool is_unlimited; /* no scheduler, and the fallback is to run */
static uint32_t last_number;
static uint32_t reclaim_ms;
static int devices_used;         /* ordinals below it were asked for */
static const char *why_it_stays; /* NULL: memory may be parked; a child keeps it */
static _Atomic uint32_t waiters; /* changed under the lock; read without it to spare it */

/* The claim of this thread that was answered FITS last. Whether it has ended only the registry
 * knows; what asks for it names the call, which claims anew each time. */
static _Thread_local struct {
    int device;
    uint64_t bytes;
    const char *call_name;
} standing __attribute__((tls_model("initial-exec")));

/* Of this thread's claim that is given up. It counts as waiting until it ends, so that at no time
 * it is counted as memory that the process has. */
static _Thread_local uint64_t given_up_bytes __attribute__((tls_model("initial-exec")));

/* ---- counting; with LOCK_RESIDENCY held -------------------------------------------------------
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

/* Claims that were answered FITS and have not ended: their calls are on their way. */
static uint64_t claimed_bytes(int device, const struct registry_sums *sums) {
    return mode == MODE_OFF ? 0 : less(sums->bytes_claimed, of(device)->waiting_bytes);
}

/* All that the process has or is about to have, wherever it is. */
static uint64_t owned_bytes(int device) {
    const struct registry_sums sums = registry_sums_of(device);
    return sums.bytes_allocated + claimed_bytes(device, &sums);
}

static uint64_t budget_of(int device) {
    return mode == MODE_FOLLOWS && !is_unlimited ? of(device)->budget_bytes : RESIDENCY_UNLIMITED;
}

/* Whether a waiting claim may go on: then it waits no more. While the turn is open nothing is
 * parked, so all that is owned is on the device. */
static bool admit(int device, uint64_t bytes, bool needs_turn, bool is_beyond) {
    if (mode != MODE_OFF && !is_beyond) {
        if (needs_turn && !turn_is_open && !is_unlimited) return false;
        const uint64_t used_bytes = owned_bytes(device), budget_bytes = budget_of(device);
        if (used_bytes > budget_bytes || bytes > budget_bytes - used_bytes) return false;
    }
    of(device)->waiting_bytes = less(of(device)->waiting_bytes, bytes);
    return true;
}

/* ---- claims -----------------------------------------------------------------------------------
 */

struct claim {
    int device;
    uint64_t looks_before;
    bool queued;
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
    lock_take(LOCK_RESIDENCY);
    const bool goes_on =
        claim->waiter.refused || admit(claim->device, claim->waiter.bytes, true, is_beyond);
    const bool begins = !goes_on && !claim->queued;
    if (begins) queue(claim);
    lock_release(LOCK_RESIDENCY);
    if (begins) bell_ring(NEWS_NEEDS_CHANGED);
    return goes_on;
}

/* What this thread waits with, apart from its stack: a handler of SIGINT may leave the wait by a
 * jump, and never come back to it. The thread's next claim ends it then. */
static _Thread_local struct claim *waiting __attribute__((tls_model("initial-exec")));

static bool end_wait(bool goes_on) {
    lock_take(LOCK_RESIDENCY);
    leave_queue(waiting);
    const bool refused = waiting->waiter.refused;
    lock_release(LOCK_RESIDENCY);
    given_up_bytes = goes_on && !refused ? 0 : waiting->waiter.bytes;
    bell_ring(NEWS_NEEDS_CHANGED);
    free(waiting);
    waiting = NULL;
    return refused;
}

/* The claim counts as waiting; it does no more when this returns. */
static enum residency_answer wait_for_budget(struct claim *claim) {
    const struct wait_condition condition = {
        .holds = may_go_on,
        .argument = claim,
        .until_ns = UINT64_MAX,
        .wants_turn = true,
    };
    const bool goes_on = wait_for(&condition, claim->waiter.call_name);
    const bool refused = end_wait(goes_on);
    if (!goes_on) return RESIDENCY_CANCELLED;
    return refused ? RESIDENCY_REFUSED : RESIDENCY_FITS;
}

/* Starts to count a claim as waiting, and looks whether it has to. */
static bool fits_at_once(int device, uint64_t bytes, bool inside) {
    lock_take(LOCK_RESIDENCY);
    of(device)->waiting_bytes += bytes;
    const bool fits = admit(device, bytes, !inside, false);
    lock_release(LOCK_RESIDENCY);
    if (!fits && inside) given_up_bytes = bytes;
    /* Until the claim counted as waiting it took room: others that fit beside it may have been made
     * to wait. */
    if (!fits && atomic_load(&waiters) > 0) wait_wake_all();
    return fits;
}

static enum residency_answer claim_again(int device, uint64_t bytes, const char *call_name) {
    enum residency_answer answer = RESIDENCY_REFUSED;
    waiting = malloc(sizeof *waiting);
    if (waiting == NULL) {
        given_up_bytes = bytes;
    } else {
        *waiting = (struct claim){.device = device,
                                  .looks_before = wait_looks(),
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
    standing.call_name = NULL;
    given_up_bytes = 0;
    if (waiting != NULL) {
        const int left_on = waiting->device;
        end_wait(false);
        residency_unclaim(left_on, given_up_bytes);
    }
    if (!is_counted(device)) return RESIDENCY_FITS;
    if (!inside && !bell_is_heard()) bell_start_agent(call_name);
    enum residency_answer answer = RESIDENCY_FITS;
    if (!fits_at_once(device, bytes, inside)) {
        if (inside) return RESIDENCY_REFUSED;
        /* Only now, since it asks the driver: a context that we do not know yet has no budget. */
        void *context;
        if (!contexts_know_current(&context) || is_beyond_limits()) {
            lock_take(LOCK_RESIDENCY);
            admit(device, bytes, false, true);
            lock_release(LOCK_RESIDENCY);
        } else {
            answer = claim_again(device, bytes, call_name);
        }
    }
    if (answer == RESIDENCY_FITS) {
        standing.device = device;
        standing.bytes = bytes;
        standing.call_name = call_name;
    }
    return answer;
}

void residency_unclaim(int device, uint64_t bytes) {
    lock_take(LOCK_RESIDENCY);
    registry_unclaim(device, bytes);
    if (is_counted(device))
        of(device)->waiting_bytes = less(of(device)->waiting_bytes, given_up_bytes);
    lock_release(LOCK_RESIDENCY);
    given_up_bytes = 0;
}

bool residency_claim_stands(const char *call_name) {
    if (standing.call_name == NULL || strcmp(standing.call_name, call_name) != 0) return false;
    lock_take(LOCK_RESIDENCY);
    const bool follows = mode != MODE_OFF;
    lock_release(LOCK_RESIDENCY);
    return follows;
}

uint64_t residency_claims_out(void) {
    uint64_t bytes = 0;
    lock_take(LOCK_RESIDENCY);
    for (int device = 0; device < devices_used && mode != MODE_OFF; device++) {
        const struct registry_sums sums = registry_sums_of(device);
        bytes += claimed_bytes(device, &sums);
    }
    lock_release(LOCK_RESIDENCY);
    return bytes;
}

/* ---- room -------------------------------------------------------------------------------------
 */

bool residency_suspend_claim(int device, const char *call_name, bool *has_claim) {
    if (!is_counted(device) || is_beyond_limits()) return false;
    *has_claim =
        standing.call_name && standing.device == device && residency_claim_stands(call_name);
    lock_take(LOCK_RESIDENCY);
    const bool follows = mode == MODE_FOLLOWS && !is_unlimited;
    if (follows && *has_claim) of(device)->waiting_bytes += given_up_bytes = standing.bytes;
    lock_release(LOCK_RESIDENCY);
    return follows;
}

enum residency_answer residency_claim_again(const char *call_name) {
    return claim_again(standing.device, standing.bytes, call_name);
}

uint32_t residency_reclaim_ms(void) {
    lock_take(LOCK_RESIDENCY);
    const uint32_t ms = reclaim_ms;
    lock_release(LOCK_RESIDENCY);
    return ms;
}

/* ---- for the mover ----------------------------------------------------------------------------
 */

uint64_t residency_bytes_free(int device) {
    const uint64_t parked_bytes = chunks_sums_of(device).bytes_parked;
    lock_take(LOCK_RESIDENCY);
    const uint64_t budget_bytes = budget_of(device);
    const uint64_t used_bytes = less(owned_bytes(device), parked_bytes);
    lock_release(LOCK_RESIDENCY);
    return budget_bytes == RESIDENCY_UNLIMITED ? budget_bytes : less(budget_bytes, used_bytes);
}

uint64_t residency_bytes_over(int device) {
    const uint64_t parked_bytes = chunks_sums_of(device).bytes_parked;
    lock_take(LOCK_RESIDENCY);
    const uint64_t over_bytes = less(less(owned_bytes(device), parked_bytes), budget_of(device));
    const bool stays = why_it_stays != NULL;
    lock_release(LOCK_RESIDENCY);
    return stays ? 0 : over_bytes;
}

uint64_t residency_park_hint(void) {
    uint64_t bytes = 0;
    lock_take(LOCK_RESIDENCY);
    for (int device = 0; device < devices_used && mode == MODE_FOLLOWS && !why_it_stays; device++)
        bytes += of(device)->park_hint_bytes;
    lock_release(LOCK_RESIDENCY);
    return bytes;
}

/* ---- for the agent ----------------------------------------------------------------------------
 */

void residency_start(void) {
    lock_take(LOCK_RESIDENCY);
    mode = options_get()->memory == MEMORY_OFF ? MODE_OFF : MODE_UNTOLD;
    lock_release(LOCK_RESIDENCY);
}

void residency_set_mode(bool swap, uint32_t wanted_reclaim_ms) {
    const uint32_t choice = options_get()->memory;
    if (choice != MEMORY_AS_SCHEDULED) swap = choice == MEMORY_SWAP;
    swap = swap && driver_can_move(driver_get());
    lock_take(LOCK_RESIDENCY);
    mode = swap ? MODE_FOLLOWS : MODE_OFF;
    reclaim_ms = wanted_reclaim_ms;
    lock_release(LOCK_RESIDENCY);
    wait_wake_all();
}

bool residency_swaps(void) {
    lock_take(LOCK_RESIDENCY);
    const bool swaps = mode != MODE_OFF;
    lock_release(LOCK_RESIDENCY);
    return swaps;
}

void residency_stop_parking(const char *why) {
    lock_take(LOCK_RESIDENCY);
    const bool first = why_it_stays == NULL;
    if (first) why_it_stays = why;
    lock_release(LOCK_RESIDENCY);
    if (!first) return;
    log_error(
        "%s Until the process ends, its GPU memory stays on the device, also while others "
        "have their turn.",
        why);
    bell_ring(NEWS_MEMORY_MOVED);
}

const char *residency_why_it_stays(void) {
    lock_take(LOCK_RESIDENCY);
    const char *why = why_it_stays;
    lock_release(LOCK_RESIDENCY);
    return why;
}

void residency_set_turn(bool open, bool unlimited) {
    lock_take(LOCK_RESIDENCY);
    turn_is_open = open;
    is_unlimited = open && unlimited;
    lock_release(LOCK_RESIDENCY);
}

/* It may have ended meanwhile, by an interrupt say. */
static void take_refusal(struct device_residency *of_device, uint32_t number) {
    for (struct waiter *waiter = of_device->first; waiter; waiter = waiter->next)
        if (waiter->number == number) waiter->refused = true;
}

void residency_set_budget(const uint8_t uuid[16], uint32_t serial, uint64_t budget_bytes,
                          uint64_t usable_bytes, uint64_t park_hint_bytes, uint32_t refused_need) {
    int device = 0;
    if (!devices_ordinal_of(uuid, &device) || !is_counted(device)) return;
    lock_take(LOCK_RESIDENCY);
    struct device_residency *residency = of(device);
    residency->serial = serial;
    residency->budget_bytes = budget_bytes;
    residency->usable_bytes = usable_bytes;
    residency->park_hint_bytes = park_hint_bytes;
    if (refused_need != 0) take_refusal(residency, refused_need);
    lock_release(LOCK_RESIDENCY);
    if (atomic_load(&waiters) > 0) wait_wake_all();
}

/* What is on the devices may stay there, and nothing more may come. */
static void keep_to_what_is_there(bool forget_serials) {
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    for (int i = 0; i < count; i++) {
        const int device = ordinals[i];
        if (!is_counted(device)) continue;
        const uint64_t parked_bytes = chunks_sums_of(device).bytes_parked;
        lock_take(LOCK_RESIDENCY);
        if (forget_serials) of(device)->serial = 0;
        of(device)->budget_bytes = less(owned_bytes(device), parked_bytes);
        lock_release(LOCK_RESIDENCY);
    }
}

void residency_turn_dropped(void) {
    keep_to_what_is_there(false);
}

void residency_connection_lost(void) {
    keep_to_what_is_there(true);
}

struct residency_need residency_need_of(int device) {
    struct residency_need need = {0};
    if (!is_counted(device)) return need;
    lock_take(LOCK_RESIDENCY);
    const struct waiter *first = of(device)->first;
    if (first && mode == MODE_FOLLOWS)
        need = (struct residency_need){first->number, first->bytes, first->call_name};
    lock_release(LOCK_RESIDENCY);
    return need;
}

void residency_memory_changed(void) {
    if (atomic_load(&waiters) > 0) wait_wake_all();
}

struct residency_numbers residency_numbers_of(int device) {
    struct residency_numbers numbers = {.budget_bytes = RESIDENCY_UNLIMITED};
    if (!is_counted(device)) return numbers;
    const struct chunk_sums chunks = chunks_sums_of(device);
    lock_take(LOCK_RESIDENCY);
    numbers.bytes_allocated = owned_bytes(device);
    numbers.bytes_parked = chunks.bytes_parked;
    numbers.bytes_resident = less(numbers.bytes_allocated, chunks.bytes_parked);
    if (why_it_stays)
        numbers.bytes_fixed = numbers.bytes_resident;
    else
        numbers.bytes_fixed = mode == MODE_OFF ? registry_sums_of(device).bytes_fixed
                                               : less(numbers.bytes_resident, chunks.bytes_movable);
    numbers.budget_bytes = budget_of(device);
    numbers.serial = of(device)->serial;
    lock_release(LOCK_RESIDENCY);
    return numbers;
}

uint64_t residency_usable(int device) {
    if (!is_counted(device)) return RESIDENCY_UNLIMITED;
    lock_take(LOCK_RESIDENCY);
    const uint64_t bytes = mode == MODE_FOLLOWS ? of(device)->usable_bytes : RESIDENCY_UNLIMITED;
    lock_release(LOCK_RESIDENCY);
    return bytes;
}

void residency_after_fork(void) {
    memset(devices, 0, sizeof(devices));
    devices_used = 0;
    mode = MODE_OFF;
    turn_is_open = is_unlimited = false;
    atomic_store(&waiters, 0);
}
