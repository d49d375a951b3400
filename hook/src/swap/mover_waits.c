#include "swap/mover_waits.h"

#include <string.h>

#include "base/clock.h"
#include "device/contexts.h"
#include "swap/copy_pipeline.h"
#include "swap/mover_host.h"
#include "swap/residency.h"
#include "swap/room.h"

#define RETRY_NS 20000000u
#define RETRY_NS_MAX 1000000000u
#define CONTEXTS_MAX 16

static struct {
    bool asked;
    struct room_wait asked_for;
    uint64_t ask_until_ns, room_retry_at_ns;
    /* For streams: how long until the next try, twice as long each time, and when that is. */
    bool streams_short;
    uint64_t streams_pause_ns, streams_retry_at_ns;
} waits;

/* ---- room -------------------------------------------------------------------------------------
 */

void mover_waits_end_room(void) {
    if (waits.asked) room_end(&waits.asked_for);
    waits.asked = false;
}

bool mover_waits_for_room(int device, uint64_t bytes) {
    const uint64_t now_ns = clock_now_ns();
    if (!waits.asked) waits.ask_until_ns = now_ns + (uint64_t)residency_reclaim_ms() * 1000000;
    if (waits.asked && room_is_answered(&waits.asked_for)) mover_waits_end_room();
    if (!waits.asked) {
        waits.asked_for = room_ask(device, bytes, "restore");
        waits.asked = true;
    }
    waits.room_retry_at_ns = now_ns + RETRY_NS;
    if (now_ns < waits.ask_until_ns) return true;
    mover_waits_end_room();
    return false;
}

bool mover_waits_room_is_short(void) {
    if (!waits.asked) return false;
    return clock_now_ns() < waits.room_retry_at_ns && !room_is_answered(&waits.asked_for);
}

/* ---- streams ----------------------------------------------------------------------------------
 */

/* They take a little of the device, which may be full: a moment later perhaps it is not. */
void mover_waits_for_streams(void) {
    const uint64_t pause_ns = waits.streams_pause_ns > 0 ? 2 * waits.streams_pause_ns : RETRY_NS;
    waits.streams_pause_ns = pause_ns < RETRY_NS_MAX ? pause_ns : RETRY_NS_MAX;
    waits.streams_retry_at_ns = clock_now_ns() + waits.streams_pause_ns;
    waits.streams_short = true;
}

void mover_waits_end_streams(void) {
    waits.streams_pause_ns = 0;
    waits.streams_short = false;
}

bool mover_waits_streams_are_short(void) {
    return waits.streams_short && clock_now_ns() < waits.streams_retry_at_ns;
}

/* What cannot be made now is tried again when it is needed. */
void mover_waits_open_streams(void) {
    void *contexts[CONTEXTS_MAX];
    const uint32_t count = contexts_list(false, contexts, CONTEXTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        pipeline_open(contexts[i]);
}

/* ---- both -------------------------------------------------------------------------------------
 */

uint64_t mover_waits_pause_ns(void) {
    if (waits.asked) return RETRY_NS;
    if (!waits.streams_short) return MOVER_HOST_NEVER;
    const uint64_t now_ns = clock_now_ns();
    if (now_ns < waits.streams_retry_at_ns) return waits.streams_retry_at_ns - now_ns;
    waits.streams_short = false; /* one more look follows: at the last one it may have been so */
    return 1;
}

void mover_waits_end(void) {
    mover_waits_end_room();
    mover_waits_end_streams();
}

void mover_waits_after_fork(void) {
    memset(&waits, 0, sizeof(waits));
}
