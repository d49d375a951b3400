#include "memory/slab.h"

#include <stddef.h>

/* The first unit from `from` on that is used (or free); SLAB_UNITS when there is none. */
static uint32_t next_unit(const struct slab *slab, uint32_t from, bool used) {
    while (from < SLAB_UNITS) {
        const uint64_t word = used ? slab->used[from / 64] : ~slab->used[from / 64];
        const uint64_t rest = word >> (from % 64);
        if (rest != 0) return from + (uint32_t)__builtin_ctzll(rest);
        from = (from / 64 + 1) * 64;
    }
    return SLAB_UNITS;
}

static void mark(struct slab *slab, uint32_t from, uint32_t units, bool used) {
    for (uint32_t unit = from; unit < from + units; unit++) {
        const uint64_t bit = (uint64_t)1 << (unit % 64);
        if (used)
            slab->used[unit / 64] |= bit;
        else
            slab->used[unit / 64] &= ~bit;
    }
    slab->units_used += used ? units : -units;
}

static uint32_t units_of(uint32_t bytes) {
    return (bytes + SLAB_UNIT_BYTES - 1) / SLAB_UNIT_BYTES;
}

bool slab_take(struct slab *slab, uint32_t bytes, uint64_t id, uint64_t *offset) {
    const uint32_t units = units_of(bytes);
    if (units > SLAB_UNITS - slab->units_used) return false;
    if (slab->too_many != 0 && units >= slab->too_many) return false;
    uint32_t from = next_unit(slab, 0, false);
    while (from + units <= SLAB_UNITS) {
        const uint32_t end = next_unit(slab, from, true);
        if (end - from >= units) {
            mark(slab, from, units, true);
            slab->entries[from] = (struct slab_entry){.bytes = bytes, .id = id};
            *offset = (uint64_t)from * SLAB_UNIT_BYTES;
            return true;
        }
        from = next_unit(slab, end, false);
    }
    slab->too_many = units;
    return false;
}

struct slab_entry *slab_find(struct slab *slab, uint64_t offset, uint64_t *start) {
    if (offset >= SLAB_BYTES) return NULL;
    /* No allocation that begins before another one reaches into it. */
    for (int32_t unit = (int32_t)(offset / SLAB_UNIT_BYTES); unit >= 0; unit--) {
        struct slab_entry *entry = &slab->entries[unit];
        if (entry->bytes == 0) continue;
        *start = (uint64_t)unit * SLAB_UNIT_BYTES;
        return offset - *start < entry->bytes ? entry : NULL;
    }
    return NULL;
}

void slab_give(struct slab *slab, uint64_t start) {
    const uint32_t unit = (uint32_t)(start / SLAB_UNIT_BYTES);
    mark(slab, unit, units_of(slab->entries[unit].bytes), false);
    slab->entries[unit] = (struct slab_entry){0};
    slab->too_many = 0;
}
