/* What the hook offers to the Python side of a kernel, through ctypes.CDLL(None). None of these
 * blocks, and none needs that CUDA was ever opened. See ARCHITECTURE.md. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/agent.h"
#include "agent/cells.h"
#include "agent/wishes.h"
#include "base/log.h"
#include "gate/wait.h"

#define EXPORT __attribute__((visibility("default")))

#define API_VERSION 1

EXPORT int gpushare_api_version(void);
EXPORT void gpushare_cell_began(void);
EXPORT void gpushare_cell_ended(void);
EXPORT int gpushare_cancel_waits(void);
EXPORT uint64_t gpushare_waits_cancelled(void);
EXPORT void gpushare_hold(uint32_t hold_ms);
EXPORT void gpushare_release(void);
EXPORT int gpushare_describe(char *json, size_t size);

static _Atomic uint32_t running;
static _Atomic uint64_t ended;
static _Atomic uint64_t hold_wish; /* milliseconds plus one; 0: none */
static _Atomic bool release_wish;

bool cells_running(void) {
    return atomic_load(&running) > 0;
}

uint64_t cells_ended(void) {
    return atomic_load(&ended);
}

void cells_after_fork(void) {
    atomic_store(&running, 0);
}

bool wishes_take_hold(uint32_t *hold_ms) {
    uint64_t wish = atomic_exchange(&hold_wish, 0);
    if (wish > 0) *hold_ms = (uint32_t)(wish - 1);
    return wish > 0;
}

bool wishes_take_release(void) {
    return atomic_exchange(&release_wish, false);
}

void wishes_after_fork(void) {
    atomic_store(&hold_wish, 0);
    atomic_store(&release_wish, false);
}

int gpushare_api_version(void) {
    return API_VERSION;
}

void gpushare_cell_began(void) {
    if (atomic_fetch_add(&running, 1) == 0) agent_notify(AGENT_CELLS_CHANGED);
}

void gpushare_cell_ended(void) {
    uint32_t before = atomic_load(&running);
    do {
        if (before == 0) return; /* an end without a beginning: hooked in the middle of a cell */
    } while (!atomic_compare_exchange_weak(&running, &before, before - 1));
    if (before > 1) return;
    atomic_fetch_add(&ended, 1);
    agent_notify(AGENT_CELLS_CHANGED);
}

int gpushare_cancel_waits(void) {
    uint32_t cancelled = wait_cancel_all();
    if (cancelled > 0) log_debug("cancel: %u calls, asked for by the process", cancelled);
    return (int)cancelled;
}

uint64_t gpushare_waits_cancelled(void) {
    return wait_calls_cancelled();
}

void gpushare_hold(uint32_t hold_ms) {
    atomic_store(&hold_wish, (uint64_t)hold_ms + 1);
    agent_notify(AGENT_WISHED);
}

void gpushare_release(void) {
    atomic_store(&release_wish, true);
    agent_notify(AGENT_WISHED);
}

int gpushare_describe(char *json, size_t size) {
    return (int)agent_describe(json, size);
}
