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

EXPORT int gpushare_api_version(void) {
    return API_VERSION;
}

EXPORT void gpushare_cell_began(void) {
    notebook_cell_began();
}

EXPORT void gpushare_cell_ended(void) {
    notebook_cell_ended();
}

EXPORT int gpushare_cancel_waits(void) {
    uint32_t cancelled = wait_cancel_all();
    if (cancelled > 0) log_debug("cancel: %u calls, asked for by the process", cancelled);
    return (int)cancelled;
}

EXPORT uint64_t gpushare_waits_cancelled(void) {
    return wait_calls_cancelled();
}

EXPORT void gpushare_hold(uint32_t hold_ms) {
    notebook_wish_hold(hold_ms);
}

EXPORT void gpushare_release(void) {
    notebook_wish_release();
}

EXPORT int gpushare_describe(char *json, size_t size) {
    return (int)agent_describe(json, size);
}
