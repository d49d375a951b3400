/* What the hook offers to the Python side of a kernel, through ctypes.CDLL(None). None of these
 * blocks, and none needs that CUDA was ever opened. See ARCHITECTURE.md. */
#include <stddef.h>
#include <stdint.h>

#include "agent/agent.h"
#include "agent/notebook.h"
#include "base/log.h"
#include "base/wait.h"

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

int gpushare_api_version(void) {
    return API_VERSION;
}

void gpushare_cell_began(void) {
    notebook_cell_began();
}

void gpushare_cell_ended(void) {
    notebook_cell_ended();
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
    notebook_wish_hold(hold_ms);
}

void gpushare_release(void) {
    notebook_wish_release();
}

int gpushare_describe(char *json, size_t size) {
    return (int)agent_describe(json, size);
}
