/* What the hook offers to the Python side of a kernel, through ctypes.CDLL(None). None of these
 * blocks, and none needs that CUDA was ever opened. See ARCHITECTURE.md. */
#include "agent/notebook.h"

#include <stdatomic.h>

#include "agent/agent.h"
#include "agent/session.h"
#include "base/bell.h"
#include "base/log.h"
#include "base/wait.h"

#define EXPORT __attribute__((visibility("default")))
#define API_VERSION 1

static _Atomic uint32_t running;
static _Atomic uint64_t ended;
static _Atomic uint64_t hold_wish; /* milliseconds plus one; 0: none */
static _Atomic bool release_wish;

EXPORT int gpushare_api_version(void) {
    return API_VERSION;
}

/* Which jupyter-gpushare this library is of. Older ones do not tell. */
EXPORT const char *gpushare_version(void) {
    return GPUSHARE_VERSION;
}

EXPORT void gpushare_cell_began(void) {
    wait_cell_begins();
    if (atomic_fetch_add(&running, 1) == 0) bell_ring(NEWS_CELLS_CHANGED);
}

EXPORT void gpushare_cell_ended(void) {
    uint32_t before = atomic_load(&running);
    do {
        if (before == 0) return; /* an end without a beginning: hooked in the middle of a cell */
    } while (!atomic_compare_exchange_weak(&running, &before, before - 1));
    if (before > 1) return;
    atomic_fetch_add(&ended, 1);
    bell_ring(NEWS_CELLS_CHANGED);
}

/* A wish waits until there is a scheduler to tell it to; a later one of its kind replaces it. */
EXPORT void gpushare_hold(uint32_t hold_ms) {
    atomic_store(&hold_wish, (uint64_t)hold_ms + 1);
    bell_ring(NEWS_WISHED);
}

EXPORT void gpushare_release(void) {
    atomic_store(&release_wish, true);
    bell_ring(NEWS_WISHED);
}

EXPORT int gpushare_cancel_waits(void) {
    uint32_t cancelled = wait_cancel_all();
    if (cancelled > 0) log_debug("cancel: %u calls, asked for by the process", cancelled);
    return (int)cancelled;
}

EXPORT uint64_t gpushare_waits_cancelled(void) {
    return wait_calls_cancelled();
}

EXPORT int gpushare_describe(char *json, size_t size) {
    return (int)agent_describe(json, size);
}

/* ---- for the agent ---- */

bool notebook_cell_runs(uint64_t *times_ended) {
    const bool runs = atomic_load(&running) > 0;
    *times_ended = atomic_load(&ended);
    return runs;
}

bool notebook_take_hold(uint32_t *hold_ms) {
    uint64_t wish = atomic_exchange(&hold_wish, 0);
    if (wish > 0) *hold_ms = (uint32_t)(wish - 1);
    return wish > 0;
}

bool notebook_take_release(void) {
    return atomic_exchange(&release_wish, false);
}

void notebook_after_fork(void) {
    atomic_store(&running, 0);
    atomic_store(&hold_wish, 0);
    atomic_store(&release_wish, false);
}
