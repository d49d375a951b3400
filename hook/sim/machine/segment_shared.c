/* Memory that several processes have: one of them is charged for it, and another one after it. */
#define _GNU_SOURCE
#include <string.h>

#include "machine/segment.h"

static int row_of(const struct sim_segment *segment, const struct sim_process *process) {
    return (int)(process - segment->processes);
}

/* The entry that a key names, unless it is gone. */
static struct sim_shared *entry_of(struct sim_segment *segment, uint64_t key) {
    struct sim_shared *entry = &segment->shared[key % SIM_SHARED_MAX];
    return key != 0 && entry->key == key ? entry : NULL;
}

/* Whoever else has it is charged from now on; without anybody it is gone. Not the device's sum. */
static void leave(struct sim_segment *segment, struct sim_shared *entry, int row) {
    entry->holds[row] = 0;
    if (entry->owner != row) return;
    struct sim_process *before = &segment->processes[row];
    atomic_fetch_sub(&before->use[entry->device].bytes_used, entry->bytes);
    for (int p = 0; p < SIM_PROCESSES_MAX; p++) {
        if (entry->holds[p] == 0) continue;
        entry->owner = p;
        atomic_fetch_add(&segment->processes[p].use[entry->device].bytes_used, entry->bytes);
        return;
    }
    atomic_fetch_sub(&segment->devices[entry->device].bytes_used, entry->bytes);
    entry->key = 0;
}

void segment_shared_clear(struct sim_segment *segment, struct sim_process *process) {
    const int row = row_of(segment, process);
    for (int i = 0; i < SIM_SHARED_MAX; i++) {
        struct sim_shared *entry = &segment->shared[i];
        if (entry->key != 0 && entry->holds[row] > 0) leave(segment, entry, row);
    }
}

uint64_t segment_share(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       uint64_t bytes) {
    uint64_t key = 0;
    for (uint64_t i = 0; i < SIM_SHARED_MAX && key == 0; i++) {
        struct sim_shared *entry = &segment->shared[i];
        if (entry->key != 0) continue;
        key = ++segment->shared_serial * SIM_SHARED_MAX + i;
        memset(entry, 0, sizeof *entry);
        entry->key = key;
        entry->bytes = bytes;
        entry->device = device;
        entry->owner = row_of(segment, self);
        entry->holds[entry->owner] = 1;
    }
    return key;
}

bool segment_share_hold(struct sim_segment *segment, struct sim_process *self, uint64_t key) {
    struct sim_shared *entry = entry_of(segment, key);
    if (entry != NULL) entry->holds[row_of(segment, self)]++;
    return entry != NULL;
}

void segment_share_drop(struct sim_segment *segment, struct sim_process *self, uint64_t key) {
    const int row = row_of(segment, self);
    struct sim_shared *entry = entry_of(segment, key);
    if (entry != NULL && entry->holds[row] > 0 && --entry->holds[row] == 0)
        leave(segment, entry, row);
}
