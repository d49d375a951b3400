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
} self;

/* ---- room -------------------------------------------------------------------------------------
 */

void mover_waits_end_room(void) {
    if (self.asked) room_end(&self.asked_for);
    self.asked = false;
}

bool mover_waits_for_room(int device, uint64_t bytes) {
    const uint64_t now_ns = clock_now_ns();
    if (!self.asked) self.ask_until_ns = now_ns + (uint64_t)residency_reclaim_ms() * 1000000;
    if (self.asked && room_is_answered(&self.asked_for)) mover_waits_end_room();
    if (!self.asked) {
        self.asked_for = room_ask(device, bytes, "restore");
        self.asked = true;
    }
    self.room_retry_at_ns = now_ns + RETRY_NS;
    if (now_ns < self.ask_until_ns) return true;
    mover_waits_end_room();
    return false;
}

bool mover_waits_room_is_short(void) {
    if (!self.asked) return false;
    return clock_now_ns() < self.room_retry_at_ns && !room_is_answered(&self.asked_for);
}

/* ---- streams ----------------------------------------------------------------------------------
 */

/* They take a little of the device, which may be full: a moment later perhaps it is not. */
void mover_waits_for_streams(void) {
    const uint64_t pause_ns = self.streams_pause_ns > 0 ? 2 * self.streams_pause_ns : RETRY_NS;
    self.streams_pause_ns = pause_ns < RETRY_NS_MAX ? pause_ns : RETRY_NS_MAX;
    self.streams_retry_at_ns = clock_now_ns() + self.streams_pause_ns;
    self.streams_short = true;
}

void mover_waits_end_streams(void) {
    self.streams_pause_ns = 0;
    self.streams_short = false;
}

bool mover_waits_streams_are_short(void) {
    self.streams_short = self.streams_short && clock_now_ns() < self.streams_retry_at_ns;
    return self.streams_short;
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
    if (self.asked) return RETRY_NS;
    if (!self.streams_short) return MOVER_HOST_NEVER;
    const uint64_t now_ns = clock_now_ns();
    return self.streams_retry_at_ns > now_ns ? self.streams_retry_at_ns - now_ns : 1;
}

void mover_waits_end(void) {
    mover_waits_end_room();
    mover_waits_end_streams();
}

void mover_waits_after_fork(void) {
    memset(&self, 0, sizeof(self));
}
