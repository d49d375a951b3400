#define _GNU_SOURCE
#include "memory/graph_backing.h"

#include <stdlib.h>

#include "memory/memory.h"
#include "memory/region.h"
#include "process/process.h"

static struct graph_backing *backings;
static struct graph_figures figures[SIM_DEVICES_MAX]; /* by ordinal */

struct graph_backing *graph_backing_find(int ordinal, uint64_t bytes,
                                         bool (*fits)(const struct graph_backing *, const void *),
                                         const void *argument) {
    struct graph_backing *best = NULL;
    for (struct graph_backing *b = backings; b != NULL; b = b->next) {
        if (b->ordinal != ordinal || b->bytes < bytes || !fits(b, argument)) continue;
        if (best == NULL || b->bytes < best->bytes) best = b;
    }
    return best;
}

static bool charge(int ordinal, uint64_t bytes) {
    struct graph_figures *now = &figures[ordinal];
    const uint64_t reserved = region_whole_segments(now->used_bytes + bytes);
    if (!segment_charge(process_segment, process_row, process_devices[ordinal],
                        reserved - now->reserved_bytes))
        return false;
    now->used_bytes += bytes;
    now->reserved_bytes = reserved;
    if (now->used_bytes > now->used_high_bytes) now->used_high_bytes = now->used_bytes;
    if (reserved > now->reserved_high_bytes) now->reserved_high_bytes = reserved;
    return true;
}

static void discharge(int ordinal, uint64_t bytes) {
    struct graph_figures *now = &figures[ordinal];
    now->used_bytes -= bytes;
    const uint64_t reserved = region_whole_segments(now->used_bytes);
    segment_discharge(process_segment, process_row, process_devices[ordinal],
                      now->reserved_bytes - reserved);
    now->reserved_bytes = reserved;
}

struct graph_backing *graph_backing_open(int ordinal, uint64_t bytes) {
    struct graph_backing *backing = calloc(1, sizeof *backing);
    if (backing == NULL) return NULL;
    if (charge(ordinal, bytes)) {
        backing->storage = memory_storage_take(bytes);
        if (backing->storage == NULL) discharge(ordinal, bytes);
    }
    if (backing->storage == NULL) {
        free(backing);
        return NULL;
    }
    backing->ordinal = ordinal;
    backing->bytes = bytes;
    backing->next = backings;
    backings = backing;
    return backing;
}

void graph_backing_trim(int ordinal, bool (*idle)(struct graph_backing *)) {
    struct graph_backing **link = &backings;
    while (*link != NULL) {
        struct graph_backing *backing = *link;
        if (backing->ordinal != ordinal || !idle(backing)) {
            link = &backing->next;
            continue;
        }
        *link = backing->next;
        discharge(ordinal, backing->bytes);
        memory_storage_give(backing->storage, backing->bytes);
        free(backing);
    }
}

struct graph_figures *graph_backing_figures(int ordinal) {
    return &figures[ordinal];
}
