#include "device/peers.h"

#include "base/driver.h"
#include "base/hold.h"
#include "device/contexts.h"
#include "device/devices.h"

#define PAIRS_MAX 1024 /* contexts of 32 devices, each with each */

/* `user` may reach the memory of `owner`, by their generations. */
static struct pair {
    uint64_t user, owner;
    struct peers_change devices;
} pairs[PAIRS_MAX];
static int pairs_used;
static _Atomic int pairs_there;
static _Atomic unsigned int changes;

static bool reaches(int user, int owner) {
    for (int i = 0; i < pairs_used; i++)
        if (pairs[i].devices.user == user && pairs[i].devices.owner == owner) return true;
    return false;
}

CUmemAccessDesc peers_access_of(int device, CUmemAccess_flags flags) {
    return (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = flags,
    };
}

int peers_access(int device, CUmemAccessDesc accesses[], int max) {
    int count = 0;
    if (atomic_load(&pairs_there) == 0) return 0;
    HOLD(LOCK_STREAMS);
    for (int user = 0; user < DEVICES_MAX && count < max; user++)
        if (user != device && reaches(user, device))
            accesses[count++] = peers_access_of(user, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return count;
}

bool peers_reach(int user, int owner) {
    HOLD(LOCK_STREAMS);
    return user == owner || reaches(user, owner);
}

unsigned int peers_changes(void) {
    return atomic_load(&changes);
}

static void publish(void) {
    atomic_store(&pairs_there, pairs_used);
    atomic_fetch_add(&changes, 1);
}

/* With the table locked; false where one of them is not known. */
static bool pair_with(void *current, void *other, struct pair *pair) {
    const struct context *user = contexts_find_handle(current);
    const struct context *owner = contexts_find_handle(other);
    if (user == NULL || owner == NULL || owner->ordinal >= DEVICES_MAX) return false;
    *pair = (struct pair){
        .user = user->generation,
        .owner = owner->generation,
        .devices = {.user = user->ordinal, .owner = owner->ordinal},
    };
    return true;
}

bool peers_change(void *other_context, bool enables, struct peers_change *change) {
    struct pair pair;
    if (!driver_can_move(driver_get())) return false;
    void *current = contexts_current();
    HOLD(LOCK_STREAMS);
    if (!pair_with(current, other_context, &pair)) return false;
    for (int i = 0; !enables && i < pairs_used; i++) {
        if (pairs[i].user != pair.user || pairs[i].owner != pair.owner) continue;
        pairs[i] = pairs[--pairs_used];
        break;
    }
    if (enables && pairs_used < PAIRS_MAX) pairs[pairs_used++] = pair;
    publish();
    *change = pair.devices;
    return reaches(pair.devices.user, pair.devices.owner) == enables &&
           pair.devices.user != pair.devices.owner;
}

void peers_forget_context(uint64_t context) {
    int kept = 0;
    for (int i = 0; i < pairs_used; i++)
        if (pairs[i].user != context && pairs[i].owner != context) pairs[kept++] = pairs[i];
    pairs_used = kept;
    publish();
}

void peers_after_fork(void) {
    pairs_used = 0;
    publish();
}
