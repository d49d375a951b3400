#include "memory/pools.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/driver.h"
#include "memory/registry.h"

/* Each place is taken once: what was destroyed leaves NULL, which the next pool takes. */
static struct {
    _Atomic(void *) pool;
    _Atomic int device;
    _Atomic uint64_t kept_bytes;
} pools[POOLS_MAX];
static _Atomic int pools_used; /* no pool lies at or behind it */
static _Atomic int lookers;    /* threads that ask the driver about some pool */

static int place_of(const void *pool) {
    const int used = atomic_load(&pools_used);
    for (int i = 0; i < used; i++)
        if (atomic_load(&pools[i].pool) == pool) return i;
    return -1;
}

void pools_seen(void *pool, int device) {
    if (pool == NULL || device < 0 || place_of(pool) >= 0) return;
    for (int i = 0; i < POOLS_MAX; i++) {
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&pools[i].pool, &none, pool)) continue;
        atomic_store(&pools[i].device, device);
        atomic_store(&pools[i].kept_bytes, 0);
        int used = atomic_load(&pools_used);
        while (used <= i && !atomic_compare_exchange_weak(&pools_used, &used, i + 1))
            continue;
        return;
    }
}

static void count(void *pool, int device, uint64_t kept_bytes) {
    const struct allocation kept = {
        .key = (uintptr_t)pool,
        .bytes = kept_bytes,
        .device = device,
        .space = REGISTRY_KEPT,
        .kind = KIND_DRIVER_POOLS,
    };
    struct allocation before;
    if (kept_bytes > 0)
        registry_add(&kept);
    else
        registry_take(REGISTRY_KEPT, (uintptr_t)pool, &before);
}

/* An answer takes microseconds. */
void pools_leaving(void *pool) {
    const int place = place_of(pool);
    if (place < 0) return;
    atomic_store(&pools[place].pool, NULL);
    while (atomic_load(&lookers) > 0)
        sched_yield();
    count(pool, atomic_load(&pools[place].device), 0);
}

static uint64_t kept_by(const struct driver *cuda, void *pool) {
    cuuint64_t reserved_bytes = 0, used_bytes = 0;
    if (cuda->pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved_bytes) !=
            CUDA_SUCCESS ||
        cuda->pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used_bytes) != CUDA_SUCCESS)
        return 0;
    return reserved_bytes > used_bytes ? reserved_bytes - used_bytes : 0;
}

void pools_look(void (*changed)(int device)) {
    const int used = atomic_load(&pools_used);
    const struct driver *cuda = used > 0 ? driver_get() : NULL;
    if (!driver_can_move(cuda)) return;
    atomic_fetch_add(&lookers, 1);
    for (int i = 0; i < used; i++) {
        void *pool = atomic_load(&pools[i].pool);
        if (pool == NULL) continue;
        const int device = atomic_load(&pools[i].device);
        const uint64_t kept_bytes = kept_by(cuda, pool);
        if (atomic_exchange(&pools[i].kept_bytes, kept_bytes) == kept_bytes) continue;
        count(pool, device, kept_bytes);
        changed(device);
    }
    atomic_fetch_sub(&lookers, 1);
}

uint64_t pools_kept_bytes(void *pool) {
    const int place = place_of(pool);
    return place < 0 ? 0 : atomic_load(&pools[place].kept_bytes);
}

void pools_after_fork(void) {
    atomic_store(&pools_used, 0);
    atomic_store(&lookers, 0);
    for (int i = 0; i < POOLS_MAX; i++)
        atomic_store(&pools[i].pool, NULL);
}
