/* What programs set and ask of pools that are ours (pooled.h). */
#include "base/hold.h"
#include "memory/pooled.h"

bool pooled_is_open(struct pool *pool) {
    HOLD(LOCK_MEMORY);
    return pool->space.bytes > 0;
}

void pooled_set_threshold(struct pool *pool, uint64_t bytes) {
    HOLD(LOCK_MEMORY);
    pool->threshold = bytes;
}

void pooled_set_reuse(bool *rule, bool allowed) {
    HOLD(LOCK_MEMORY);
    *rule = allowed;
}

void pooled_reset_marks(struct pool *pool, bool reserved, bool used) {
    HOLD(LOCK_MEMORY);
    if (reserved) pool->most_reserved = pool->bytes_reserved;
    if (used) pool->most_used = pool->space.bytes_asked;
}

struct pooled_numbers pooled_numbers(struct pool *pool) {
    HOLD(LOCK_MEMORY);
    return (struct pooled_numbers){pool->bytes_reserved, pool->most_reserved,
                                   pool->space.bytes_asked, pool->most_used};
}

uint64_t pooled_keeps(struct pool *pool) {
    HOLD(LOCK_MEMORY);
    return pool->handle != NULL ? pool->threshold : 0;
}

void pooled_set_access(struct pool *pool, int device, uint8_t flags) {
    if (device < 0 || device >= REGISTRY_DEVICES_MAX) return;
    HOLD(LOCK_MEMORY);
    pool->access[device] = flags;
    pool->access_changes++;
}

uint32_t pooled_access_changes(struct pool *pool) {
    HOLD(LOCK_MEMORY);
    return pool->access_changes;
}

void pooled_forfeit(struct pool *pool, const struct run *run) {
    HOLD(LOCK_MEMORY);
    pool->bytes_claimed -= run->bytes_missing;
}
