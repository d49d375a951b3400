#include "allocate/shortage.h"

#include "base/clock.h"
#include "base/driver.h"
#include "base/log.h"
#include "base/wait.h"
#include "swap/residency.h"
#include "swap/room.h"

/* So long a scheduler is waited for that may not be there. */
#define FIRST_WORD_NS_MAX ((uint64_t)1000000000)

/* What the driver has free there, by its own word; 0 where it can only be asked about another
 * device. */
static uint64_t bytes_free(int device) {
    const struct driver *cuda = driver_get();
    CUdevice current = 0;
    size_t free_bytes = 0, total_bytes = 0;
    if (!driver_can_move(cuda) || cuda->context_get_device(&current) != CUDA_SUCCESS ||
        (int)current != device)
        return 0;
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    const CUresult result = cuda->memory_get_info(&free_bytes, &total_bytes);
    driver_relaxed_end(cuda, mode);
    return result == CUDA_SUCCESS ? free_bytes : 0;
}

static uint64_t bytes_missing(const struct shortage *shortage, uint64_t free_bytes) {
    const uint64_t needed_bytes = shortage->bytes + shortage->bytes_extra;
    const uint64_t bytes = needed_bytes > free_bytes ? needed_bytes - free_bytes : 0;
    return bytes > shortage->bytes_least ? bytes : shortage->bytes_least;
}

/* A request on its way. It is made from within the wait, so that no cancellation that follows comes
 * too early. */
struct asking {
    const struct shortage *shortage;
    uint64_t bytes;
    bool asked;
    struct room_wait wait;
    struct wait_condition condition;
    uint64_t until_ns; /* if the scheduler says nothing else */
};

static bool is_answered(void *argument) {
    struct asking *asking = argument;
    const struct shortage *shortage = asking->shortage;
    if (asking->asked) {
        const uint64_t told_ns = room_awaited_until_ns(&asking->wait);
        asking->condition.until_ns = told_ns > asking->until_ns ? told_ns : asking->until_ns;
        return room_is_answered(&asking->wait);
    }
    asking->wait = room_ask(shortage->device, asking->bytes, shortage->call_name);
    asking->asked = true;
    return false;
}

/* Whether there is room by now. Others may have made some, though not all that was asked for. */
static bool wait_for_room(const struct shortage *shortage, bool *cancelled) {
    const uint64_t free_before = bytes_free(shortage->device);
    struct asking asking = {
        .shortage = shortage,
        .bytes = bytes_missing(shortage, free_before),
        .condition = {.holds = is_answered, .argument = &asking},
        .until_ns = clock_now_ns() + (uint64_t)residency_reclaim_ms() * 1000000,
    };
    asking.condition.until_ns = asking.until_ns;
    *cancelled = !wait_for(&asking.condition, shortage->call_name);
    const bool made = asking.asked && room_end(&asking.wait);
    const uint64_t free_after = bytes_free(shortage->device);
    const bool enough = free_after > free_before && free_after >= shortage->bytes;
    log_debug("room: %llu bytes on device %d for %s, %s", (unsigned long long)asking.bytes,
              shortage->device, shortage->call_name,
              *cancelled ? "cancelled"
              : made     ? "made"
              : enough   ? "enough made"
                         : "not made");
    return made || enough;
}

static bool is_told(void *argument) {
    (void)argument;
    return residency_is_told();
}

/* A program may open its first context before the scheduler has answered for the first time. */
static bool wait_for_first_word(const char *call_name) {
    const struct wait_condition condition = {.holds = is_told,
                                             .until_ns = clock_now_ns() + FIRST_WORD_NS_MAX};
    return residency_is_told() || wait_for(&condition, call_name);
}

enum shortage_answer shortage_ask(const struct shortage *shortage) {
    const uint64_t claimed_bytes = shortage->has_claim ? shortage->bytes : 0;
    bool cancelled = false;
    if (shortage->opens_context && !wait_for_first_word(shortage->call_name))
        return SHORTAGE_CANCELLED;
    if (!residency_suspend_claim(shortage->device, claimed_bytes)) return SHORTAGE_ALONE;
    const bool has_room = wait_for_room(shortage, &cancelled);
    if (cancelled) return SHORTAGE_CANCELLED;
    /* The scheduler may know of the lack by now: then the call waits for budget. */
    const bool is_known =
        shortage->has_claim && !residency_suspended_fits(shortage->device, claimed_bytes);
    if (!has_room && !is_known) return SHORTAGE_STAYS;
    if (!shortage->has_claim) return SHORTAGE_OVER;
    switch (residency_claim_again(shortage->device, claimed_bytes, shortage->call_name)) {
        case RESIDENCY_FITS:
            return SHORTAGE_OVER;
        case RESIDENCY_AT_GATE:
            return SHORTAGE_AT_GATE;
        case RESIDENCY_CANCELLED:
            return SHORTAGE_CANCELLED;
        case RESIDENCY_REFUSED:
            break;
    }
    return SHORTAGE_STAYS;
}
