#include "device/peers.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocate/memory.h"
#include "base/driver.h"
#include "base/locks.h"
#include "base/log.h"
#include "memory/chunks.h"

#define PAIRS_MAX 1024 /* contexts of 32 devices, each with each */

/* `user` may reach the memory of `owner`. Guarded by LOCK_PEERS. */
static struct pair {
    void *user, *owner;
    int user_device, owner_device;
} pairs[PAIRS_MAX];
static int pairs_used;
static _Atomic int pairs_there;
static _Atomic unsigned int changes;

static bool reaches(int user_device, int owner_device) {
    for (int i = 0; i < pairs_used; i++)
        if (pairs[i].user_device == user_device && pairs[i].owner_device == owner_device)
            return true;
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
    lock_take(LOCK_PEERS);
    for (int user = 0; user < REGISTRY_DEVICES_MAX && count < max; user++)
        if (user != device && reaches(user, device))
            accesses[count++] = peers_access_of(user, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    lock_release(LOCK_PEERS);
    return count;
}

/* Chunks that are in host memory get it when they are mapped again. */
static void tell_mappings(int owner_device, int user_device, CUmemAccess_flags flags) {
    const struct driver *cuda = driver_get();
    const CUmemAccessDesc access = peers_access_of(user_device, flags);
    struct chunk chunk;
    enum chunk_state was;
    for (uint64_t from = 0; chunks_hold_next(owner_device, &from, &chunk, &was);) {
        const CUresult result = cuda->memory_set_access(chunk.address, chunk.bytes, &access, 1);
        chunks_settle(chunk.address, was, chunk.handle, chunk.host);
        if (result != CUDA_SUCCESS)
            log_debug("peer access of device %d to memory of device %d: error %d", user_device,
                      owner_device, (int)result);
    }
}

static int device_of(const struct driver *cuda, CUcontext context) {
    CUcontext popped;
    if (cuda->context_push(context) != CUDA_SUCCESS) return MEMORY_NOT_ON_DEVICE;
    const int device = memory_current_device();
    cuda->context_pop(&popped);
    return device;
}

static bool pair_with(void *other_context, struct pair *pair) {
    const struct driver *cuda = driver_get();
    CUcontext current = NULL;
    if (!driver_can_move(cuda) || cuda->context_get_current(&current) != CUDA_SUCCESS) return false;
    *pair = (struct pair){
        .user = current,
        .owner = other_context,
        .user_device = memory_current_device(),
        .owner_device = device_of(cuda, other_context),
    };
    return pair->user_device >= 0 && pair->owner_device >= 0 &&
           pair->owner_device < REGISTRY_DEVICES_MAX;
}

unsigned int peers_changes(void) {
    return atomic_load(&changes);
}

/* Called with LOCK_PEERS held. */
static void publish(void) {
    atomic_store(&pairs_there, pairs_used);
    atomic_fetch_add(&changes, 1);
}

void peers_enabled(void *other_context) {
    struct pair pair;
    if (!pair_with(other_context, &pair)) return;
    lock_take(LOCK_PEERS);
    if (pairs_used < PAIRS_MAX) pairs[pairs_used++] = pair;
    publish();
    lock_release(LOCK_PEERS);
    if (pair.user_device != pair.owner_device)
        tell_mappings(pair.owner_device, pair.user_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

void peers_disabled(void *other_context) {
    struct pair pair;
    if (!pair_with(other_context, &pair)) return;
    lock_take(LOCK_PEERS);
    for (int i = 0; i < pairs_used; i++) {
        if (pairs[i].user != pair.user || pairs[i].owner != pair.owner) continue;
        pairs[i] = pairs[--pairs_used];
        break;
    }
    const bool still_reaches = reaches(pair.user_device, pair.owner_device);
    publish();
    lock_release(LOCK_PEERS);
    if (!still_reaches && pair.user_device != pair.owner_device)
        tell_mappings(pair.owner_device, pair.user_device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

void peers_forget_context(void *context) {
    lock_take(LOCK_PEERS);
    int kept = 0;
    for (int i = 0; i < pairs_used; i++)
        if (pairs[i].user != context && pairs[i].owner != context) pairs[kept++] = pairs[i];
    pairs_used = kept;
    publish();
    lock_release(LOCK_PEERS);
}

void peers_after_fork(void) {
    pairs_used = 0;
    publish();
}
