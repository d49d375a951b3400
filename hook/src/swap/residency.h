/* What this process may have on each device (its budget), and waiting for more.
 *
 * What counts against the budget is all that is on the device: what the registry has (registry.h,
 * with claims) less what is parked (chunks.h). Guarded by LOCK_MEMORY, like those. Before the
 * scheduler has said anything of a device, and where memory does not follow the turn, there is no
 * limit.
 *
 * A claim that was answered FITS is a promise of both sides: its call passes the gate although that
 * is being shut meanwhile, and a turn is not given back before all such claims have ended. So what
 * comes between a claim and its end must not wait for anything but the driver. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RESIDENCY_UNLIMITED UINT64_MAX

struct chunk;

enum residency_answer {
    RESIDENCY_FITS,      /* claimed: the caller allocates, then keeps the claim or unclaims it */
    RESIDENCY_AT_GATE,   /* memory does not follow the turn: the call waits at the gate, and the
                            claim counts as waiting until residency_claim_passed */
    RESIDENCY_REFUSED,   /* there will be no room: out of memory */
    RESIDENCY_CANCELLED, /* the wait was cancelled: GATE_CANCELLED_RESULT */
};

/* ---- for allocating threads (outside the gate's mark) ---- */

/* Asks whether `bytes` that were claimed in the registry (registry_claim) just now fit the budget;
 * the claim ends in registry_keep, or in residency_unclaim when there is no allocation. Waits for
 * the turn and for budget where they lack, as a call at the gate does (cancellable). `inside`
 * another gated call it answers at once. Not for allocations that belong to a capture. One that
 * does not fit counts as waiting until it ends: at no time as memory that the process has. */
enum residency_answer residency_claim(int device, uint64_t bytes, const char *call_name,
                                      bool inside);
/* Outside gated calls, the driver had no memory although the budget has (shortage.h). False: there
 * is nobody to ask for room. Else what was claimed for the call (0: nothing) counts as a claim that
 * waits, so that the turn can go. */
bool residency_suspend_claim(int device, uint64_t claimed_bytes);
/* Whether the budget still has what was suspended. */
bool residency_suspended_fits(int device, uint64_t claimed_bytes);
/* Asks anew for what was suspended, as residency_claim does. */
enum residency_answer residency_claim_again(int device, uint64_t bytes, const char *call_name);
/* The call of a claim that was answered AT_GATE has passed the gate. */
void residency_claim_passed(int device, uint64_t bytes);
/* Ends a claim in the registry too; `waits`: it counts as waiting. */
void residency_unclaim(int device, uint64_t bytes, bool waits);

/* ---- for the gate ---- */

/* Bytes of such claims that have not ended; none is added while the turn is not open. */
uint64_t residency_claims_out(void);

/* ---- for the mover ---- */

/* How much may be created now, and how much has to leave, by the budget. */
uint64_t residency_bytes_free(int device);
uint64_t residency_bytes_over(int device);
/* Claims the chunk that comes back next, if the budget reaches for it: from then on it counts as
 * there, and whoever asks for the numbers is told so. With LOCK_MEMORY held. */
struct chunk *residency_claim_locked(int device);
/* For how much memory, on all devices, host memory is worth preparing: beside what is parked. */
uint64_t residency_park_hint(void);
/* How much of that is to be copied now, ahead of need, beside what has a host copy: nothing while
 * memory of any device has to leave. */
uint64_t residency_bytes_to_copy(int device);
/* Whether copies ahead of need are wanted at all, or memory that is back ahead of the turn. */
bool residency_copies_ahead(int device);
bool residency_comes_ahead(int device);
/* Whether those that there are may still be: nobody parks for others who need no space. */
bool residency_copies_are_of_use(int device);
/* No memory is ready for more of them: there are none before the next turn. */
void residency_cannot_copy(int device);

uint32_t residency_reclaim_ms(void);
/* Whether the scheduler has said, or the process was told, if memory follows the turn. */
bool residency_is_told(void);

/* ---- for the agent ---- */

/* The agent runs: from now on claims wait for the turn. */
void residency_start(void);
void residency_set_mode(bool swap, uint32_t reclaim_ms);
bool residency_swaps(void);
/* Something in this process uses the driver where the hook does not see it: from now on nothing is
 * parked, and all counts as fixed. What is parked still comes back with the turn. Says so to the
 * user, once; `why` is a sentence that stays. */
void residency_stop_parking(const char *why);
/* That sentence; NULL while memory may be parked. */
const char *residency_why_it_stays(void);
/* The gate is about to be opened, or shut: claims are admitted while it is open. `unlimited`: there
 * is no scheduler to say what the process may have. */
void residency_set_turn(bool open, bool unlimited);
/* What the scheduler has said of a device. */
struct residency_budget {
    uint32_t serial;
    uint64_t budget_bytes, usable_bytes, park_hint_bytes;
    uint8_t ahead;         /* enum ahead (messages.toml) */
    uint32_t refused_need; /* the number of the need that cannot be met; 0: none */
};
void residency_set_budget(const uint8_t uuid[16], const struct residency_budget *told);
/* TurnDropped is about to be sent: budgets become what is on the devices. */
void residency_turn_dropped(void);
/* A new connection: nothing is known; what is there may stay, nothing is created. */
void residency_connection_lost(void);

/* What the oldest of the claims waits for that do not fit; no bytes: none waits. */
struct residency_need {
    uint32_t number; /* another one for each claim; 0: none waits */
    uint64_t bytes;
    const char *call_name;
};
struct residency_need residency_need_of(int device);

/* Memory was freed, or added: claims that wait look again. */
void residency_memory_changed(void);

/* What the tenant could have at most on the device, RESIDENCY_UNLIMITED when not told. */
uint64_t residency_usable(int device);

struct residency_numbers {
    uint64_t bytes_allocated; /* all of it, with claims on their way; of that */
    uint64_t bytes_parked;    /* in host memory, */
    uint64_t bytes_kept;      /* which the driver may keep on the device until others need it, */
    uint64_t bytes_resident;  /* and on the device; of the latter */
    uint64_t bytes_fixed;     /* cannot be moved, */
    uint64_t bytes_copied;    /* and leaves without a copy */
    uint64_t bytes_to_copy;   /* of the rest, what could have a host copy ahead of need */
    uint64_t budget_bytes;
    uint32_t serial; /* of the latest budget; 0: none on this connection */
};
struct residency_numbers residency_numbers_of(int device);

void residency_after_fork(void);
