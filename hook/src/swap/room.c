#include "swap/room.h"

#include <string.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/hold.h"
#include "base/wait.h"
#include "device/devices.h"
#include "memory/registry.h"
#include "swap/residency.h"

static struct room {
    uint32_t waiters;
    uint32_t answers;
    bool made;        /* by the latest answer */
    bool asked;       /* it was sent, */
    uint32_t request; /* with this number */
    bool withdrawn;   /* nobody waits for its answer, which is still to be told */
    uint64_t awaited_until_ns;
    uint64_t bytes;
    const char *call_name;
} rooms[REGISTRY_DEVICES_MAX];
static uint32_t last_request; /* guarded likewise */

struct room_wait room_ask(int device, uint64_t bytes, const char *call_name) {
    lock_take(LOCK_MEMORY);
    struct room *room = &rooms[device];
    if (room->waiters++ == 0 || bytes > room->bytes) {
        room->bytes = bytes;
        room->asked = room->withdrawn = false;
        room->awaited_until_ns = 0;
        room->call_name = call_name;
    }
    const struct room_wait wait = {device, room->answers};
    lock_release(LOCK_MEMORY);
    bell_ring(NEWS_NEEDS_CHANGED);
    return wait;
}

bool room_is_answered(void *argument) {
    const struct room_wait *wait = argument;
    HOLD(LOCK_MEMORY);
    return rooms[wait->device].answers != wait->answers_before;
}

uint64_t room_awaited_until_ns(const struct room_wait *wait) {
    HOLD(LOCK_MEMORY);
    return rooms[wait->device].awaited_until_ns;
}

bool room_end(const struct room_wait *wait) {
    lock_take(LOCK_MEMORY);
    struct room *room = &rooms[wait->device];
    room->withdrawn = --room->waiters == 0 && room->asked && room->bytes > 0;
    const bool withdrawn = room->withdrawn;
    const bool made = room->answers != wait->answers_before && room->made;
    lock_release(LOCK_MEMORY);
    if (withdrawn) bell_ring(NEWS_NEEDS_CHANGED);
    return made;
}

bool room_next(int *device, uint64_t *bytes, uint32_t *request, const char **call_name) {
    bool found = false;
    HOLD(LOCK_MEMORY);
    for (int i = 0; i < REGISTRY_DEVICES_MAX && !found; i++) {
        struct room *room = &rooms[i];
        found = room->withdrawn || (room->waiters > 0 && !room->asked && room->bytes > 0);
        if (!found) continue;
        *bytes = room->withdrawn ? 0 : room->bytes;
        room->asked = !room->withdrawn;
        room->withdrawn = false;
        room->request = *request = ++last_request;
        *device = i;
        *call_name = room->call_name;
    }
    return found;
}

void room_ask_again(void) {
    HOLD(LOCK_MEMORY);
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        rooms[device].asked = rooms[device].withdrawn = false;
}

static bool is_awaited(int device, uint32_t request) {
    HOLD(LOCK_MEMORY);
    const bool awaited =
        rooms[device].waiters > 0 && rooms[device].asked && rooms[device].request == request;
    return awaited;
}

static bool is_meant(int device, const uint8_t uuid[16], uint32_t request) {
    uint8_t own_uuid[16];
    return is_awaited(device, request) && devices_uuid_of(device, own_uuid) &&
           memcmp(uuid, own_uuid, sizeof(own_uuid)) == 0;
}

void room_awaited(const uint8_t uuid[16], uint32_t request, uint32_t wait_ms) {
    const uint64_t until_ns = clock_now_ns() + (uint64_t)wait_ms * 1000000;
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        if (!is_meant(device, uuid, request)) continue;
        lock_take(LOCK_MEMORY);
        rooms[device].awaited_until_ns = until_ns;
        lock_release(LOCK_MEMORY);
    }
    wait_wake_all();
}

void room_connection_lost(void) {
    const uint64_t until_ns = clock_now_ns() + (uint64_t)residency_reclaim_ms() * 1000000;
    lock_take(LOCK_MEMORY);
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        if (rooms[device].awaited_until_ns > until_ns) rooms[device].awaited_until_ns = until_ns;
    lock_release(LOCK_MEMORY);
    wait_wake_all();
}

void room_answered(const uint8_t uuid[16], uint32_t request, bool made) {
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        if (!is_meant(device, uuid, request)) continue;
        lock_take(LOCK_MEMORY);
        rooms[device].answers++;
        rooms[device].made = made;
        rooms[device].bytes = 0;
        lock_release(LOCK_MEMORY);
    }
    wait_wake_all();
}

void room_after_fork(void) {
    memset(rooms, 0, sizeof(rooms));
}
