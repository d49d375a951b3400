#define _GNU_SOURCE
#include "memory/managed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "memory/memory.h"
#include "process/context.h"
#include "process/process.h"

#define PAGE_BYTES 4096u

struct managed {
    size_t block_count;
    _Atomic uint32_t *places;   /* of each block: device + 1; 0: the host */
    uint32_t *kept;             /* likewise where it was, and may still have its memory */
    struct managed_note *notes; /* of each page */
};

/* Guards all records; taken inside the lock of the table of ranges, and before the segment's. */
static pthread_mutex_t managed_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t pages_of(uint64_t bytes) {
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

bool managed_open(struct range *range) {
    struct managed *managed = calloc(1, sizeof *managed);
    if (managed == NULL) return false;
    managed->block_count = (range->bytes + MEMORY_GRANULE_BYTES - 1) / MEMORY_GRANULE_BYTES;
    managed->places = calloc(managed->block_count, sizeof *managed->places);
    managed->kept = calloc(managed->block_count, sizeof *managed->kept);
    managed->notes = calloc(pages_of(range->bytes), sizeof *managed->notes);
    range->managed = managed;
    if (managed->places != NULL && managed->kept != NULL && managed->notes != NULL) return true;
    managed_close(range);
    return false;
}

/* What is kept of a block becomes the process's own again. False: there is none, or not all. */
static bool take_kept(struct managed *managed, size_t block, uint32_t device) {
    if (managed->kept[block] != device + 1) return false;
    managed->kept[block] = 0;
    return segment_take_kept(process_segment, process_row, device, MEMORY_GRANULE_BYTES);
}

static void drop_kept(struct managed *managed, size_t block) {
    const uint32_t kept = managed->kept[block];
    if (kept != 0 && take_kept(managed, block, kept - 1))
        segment_discharge(process_segment, process_row, kept - 1, MEMORY_GRANULE_BYTES);
}

/* Call with managed_lock held. What does not fit stays where it is. A block that leaves a device
 * keeps its memory there, until somebody else needs it. */
static void put(struct managed *managed, size_t block, uint32_t device) {
    const uint32_t before = atomic_load(&managed->places[block]);
    const uint32_t wanted = device == MANAGED_HOST ? 0 : device + 1;
    if (before == wanted) return;
    if (wanted != 0 && !take_kept(managed, block, device) &&
        !segment_charge(process_segment, process_row, device, MEMORY_GRANULE_BYTES))
        return;
    drop_kept(managed, block);
    if (before != 0) {
        segment_keep(process_segment, process_row, before - 1, MEMORY_GRANULE_BYTES);
        managed->kept[block] = before;
    }
    atomic_store(&managed->places[block], wanted);
}

void managed_close(struct range *range) {
    struct managed *managed = range->managed;
    if (managed == NULL) return;
    pthread_mutex_lock(&managed_lock);
    for (size_t i = 0; managed->places != NULL && managed->kept != NULL && i < managed->block_count;
         i++) {
        put(managed, i, MANAGED_HOST);
        drop_kept(managed, i);
    }
    pthread_mutex_unlock(&managed_lock);
    free(managed->places);
    free(managed->kept);
    free(managed->notes);
    free(managed);
    range->managed = NULL;
}

/* The blocks of an interval of the range: from the first to behind the last. */
static size_t first_block(const struct range *range, uint64_t address) {
    return (address - range->start) / MEMORY_GRANULE_BYTES;
}

static size_t end_block(const struct range *range, uint64_t address, uint64_t bytes) {
    return bytes == 0 ? 0 : first_block(range, address + bytes - 1) + 1;
}

static bool prefers_host(const struct range *range, size_t block) {
    const size_t page = block * (MEMORY_GRANULE_BYTES / PAGE_BYTES);
    const int type = range->managed->notes[page].preferred_type;
    return type != CU_MEM_LOCATION_TYPE_INVALID && type != CU_MEM_LOCATION_TYPE_DEVICE;
}

void managed_touch(const struct range *range, uint64_t address, uint64_t bytes,
                   const struct context *context) {
    struct managed *managed = range->managed;
    const size_t end = end_block(range, address, bytes);
    for (size_t i = first_block(range, address); i < end; i++) {
        if (atomic_load(&managed->places[i]) == context->device + 1) continue;
        pthread_mutex_lock(&managed_lock);
        if (!prefers_host(range, i)) put(managed, i, context->device);
        pthread_mutex_unlock(&managed_lock);
    }
}

struct movement {
    uint64_t address;
    uint64_t end;
    uint32_t device;
    bool only_counts;
    uint64_t bytes_elsewhere;
};

static bool move_range(struct range *range, void *argument) {
    struct movement *movement = argument;
    if (range->managed == NULL) return true;
    const uint64_t start = movement->address > range->start ? movement->address : range->start;
    const uint64_t range_end = range->start + range->bytes;
    const uint64_t end = movement->end < range_end ? movement->end : range_end;
    const uint32_t wanted = movement->device == MANAGED_HOST ? 0 : movement->device + 1;
    pthread_mutex_lock(&managed_lock);
    for (size_t i = first_block(range, start); i < end_block(range, start, end - start); i++) {
        if (atomic_load(&range->managed->places[i]) != wanted)
            movement->bytes_elsewhere += MEMORY_GRANULE_BYTES;
        if (!movement->only_counts) put(range->managed, i, movement->device);
    }
    pthread_mutex_unlock(&managed_lock);
    return true;
}

uint64_t managed_elsewhere(uint64_t address, uint64_t bytes, uint32_t device) {
    struct movement movement = {address, address + bytes, device, true, 0};
    memory_for_each(address, bytes, move_range, &movement);
    return movement.bytes_elsewhere < bytes ? movement.bytes_elsewhere : bytes;
}

void managed_move(uint64_t address, uint64_t bytes, uint32_t device) {
    struct movement movement = {address, address + bytes, device, false, 0};
    memory_for_each(address, bytes, move_range, &movement);
}

struct walk {
    uint64_t address;
    uint64_t bytes;
    bool (*visit)(struct managed_note *, void *);
    void *argument;
    bool found;
};

static bool walk_range(struct range *range, void *argument) {
    struct walk *walk = argument;
    const uint64_t offset = walk->address - range->start;
    if (range->managed == NULL || walk->address < range->start ||
        walk->bytes > range->bytes - offset)
        return false;
    walk->found = true;
    pthread_mutex_lock(&managed_lock);
    for (uint64_t page = offset / PAGE_BYTES; page < pages_of(offset + walk->bytes); page++)
        if (!walk->visit(&range->managed->notes[page], walk->argument)) break;
    pthread_mutex_unlock(&managed_lock);
    return false;
}

bool managed_for_each(uint64_t address, uint64_t bytes,
                      bool (*visit)(struct managed_note *note, void *argument), void *argument) {
    struct walk walk = {address, bytes, visit, argument, false};
    if (bytes > 0) memory_for_each(address, bytes, walk_range, &walk);
    return walk.found;
}
