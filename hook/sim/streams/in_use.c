#define _GNU_SOURCE
#include "streams/in_use.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "machine/journal.h"
#include "memory/memory.h"
#include "modules/builtin.h"
#include "process/context.h"

static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and its parts */
static struct in_use *running;

static void add_part(struct in_use *use, uint64_t start, uint64_t bytes) {
    if (bytes > 0) use->parts[use->part_count++] = (struct in_use_part){start, bytes};
}

/* From the first byte of a box of rows to its last. */
static uint64_t extent(uint64_t width, uint64_t height, uint64_t pitch, uint64_t depth,
                       uint64_t slice) {
    return width + (height - 1) * pitch + (depth - 1) * slice;
}

static void note_copy(struct in_use *use, const struct op_copy *copy) {
    if (copy->width_bytes * copy->height * copy->depth == 0) return;
    if (copy->source_on_device)
        add_part(use, copy->source,
                 extent(copy->width_bytes, copy->height, copy->source_pitch, copy->depth,
                        copy->source_slice));
    if (copy->destination_on_device)
        add_part(use, copy->destination,
                 extent(copy->width_bytes, copy->height, copy->destination_pitch, copy->depth,
                        copy->destination_slice));
}

static void note_launch(struct in_use *use, const struct op_launch *launch) {
    struct builtin_reach reach[BUILTIN_REACH_MAX];
    int count = builtin_reach(launch, reach);
    for (int i = 0; i < count; i++)
        add_part(use, reach[i].start, reach[i].bytes);
}

void in_use_begin(struct in_use *use, struct context *context, const struct op *op) {
    use->part_count = 0;
    use->context = context;
    if (op->kind == OP_COPY) note_copy(use, &op->copy);
    if (op->kind == OP_LAUNCH) note_launch(use, &op->launch);
    if (op->kind == OP_MEMSET && op->memset.width * op->memset.height > 0)
        add_part(use, op->memset.destination,
                 extent(op->memset.width * op->memset.element_bytes, op->memset.height,
                        op->memset.pitch, 1, 0));
    if (use->part_count == 0) return;
    pthread_mutex_lock(&running_lock);
    use->next = running;
    running = use;
    pthread_mutex_unlock(&running_lock);
}

void in_use_end(struct in_use *use) {
    if (use->part_count == 0) return;
    pthread_mutex_lock(&running_lock);
    struct in_use **link = &running;
    while (*link != NULL && *link != use)
        link = &(*link)->next;
    if (*link != NULL) *link = use->next;
    pthread_mutex_unlock(&running_lock);
    use->part_count = 0;
}

static bool touches(const struct in_use *use, uint64_t start, uint64_t bytes) {
    for (int i = 0; i < use->part_count; i++) {
        const struct in_use_part *part = &use->parts[i];
        if (part->start < start + bytes && start < part->start + part->bytes) return true;
    }
    return false;
}

void in_use_unmap(uint32_t device, uint64_t start, uint64_t bytes) {
    bool any = false;
    pthread_mutex_lock(&running_lock);
    for (struct in_use *use = running; use != NULL; use = use->next) {
        if (!touches(use, start, bytes)) continue;
        context_fail(use->context, CUDA_ERROR_ILLEGAL_ADDRESS);
        any = true;
    }
    pthread_mutex_unlock(&running_lock);
    if (any) memory_journal(JOURNAL_FAULT, device, bytes, "unmap in use");
}
