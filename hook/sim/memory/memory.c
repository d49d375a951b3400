/* The table of ranges and access to the bytes behind them. */
#define _GNU_SOURCE
#include "memory/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine/journal.h"
#include "memory/address.h"
#include "memory/chunk.h"
#include "memory/graph_memory.h"
#include "memory/managed.h"
#include "memory/pool.h"
#include "process/context.h"
#include "process/process.h"

static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER; /* guards the table */
static struct range **table;                                     /* sorted by start, disjoint */
static size_t table_count;
static size_t table_capacity;

uint64_t memory_next_id(void) {
    static _Atomic uint64_t next = 1;
    return atomic_fetch_add(&next, 1);
}

/* The index of the first range that ends after `address`. */
static size_t first_after(uint64_t address) {
    size_t low = 0;
    size_t high = table_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle]->start + table[middle]->bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct range *holder_of(uint64_t address) {
    size_t index = first_after(address);
    return index < table_count && table[index]->start <= address ? table[index] : NULL;
}

/* For one more. Call with table_lock held. */
static bool has_room(void) {
    if (table_count < table_capacity) return true;
    size_t capacity = table_capacity == 0 ? 256 : 2 * table_capacity;
    struct range **grown = realloc(table, capacity * sizeof *table);
    if (grown == NULL) return false;
    table = grown;
    table_capacity = capacity;
    return true;
}

bool memory_insert(struct range *range) {
    bool done = false;
    pthread_rwlock_wrlock(&table_lock);
    size_t index = first_after(range->start);
    bool overlaps = index < table_count && table[index]->start < range->start + range->bytes;
    if (has_room() && !overlaps) {
        memmove(&table[index + 1], &table[index], (table_count - index) * sizeof *table);
        table[index] = range;
        table_count++;
        done = true;
    }
    pthread_rwlock_unlock(&table_lock);
    return done;
}

/* True when there is nothing left of it before `end`. */
static bool cut(struct range *range, uint64_t end) {
    if (range->start + range->bytes <= end) return false;
    const uint64_t bytes = end - range->start;
    range->start = end;
    range->storage += bytes;
    range->bytes -= bytes;
    if (range->file_offset != 0) range->file_offset += bytes;
    return true;
}

bool memory_take_over(struct range *range, uint64_t end, struct range **gone) {
    *gone = NULL;
    pthread_rwlock_wrlock(&table_lock);
    const size_t index = first_after(range->start);
    const bool fits = has_room();
    size_t next = index;
    while (fits && next < table_count && table[next]->start < end && !cut(table[next], end)) {
        table[next]->next_removed = *gone;
        *gone = table[next++];
    }
    if (fits) {
        memmove(&table[index + 1], &table[next], (table_count - next) * sizeof *table);
        table_count = table_count + 1 - (next - index);
        table[index] = range;
    }
    pthread_rwlock_unlock(&table_lock);
    return fits;
}

struct range *memory_remove(uint64_t start, unsigned kinds) {
    struct range *range = NULL;
    pthread_rwlock_wrlock(&table_lock);
    size_t index = first_after(start);
    if (index < table_count && table[index]->start == start &&
        (kinds & (1u << table[index]->kind)) != 0) {
        range = table[index];
        table_count--;
        memmove(&table[index], &table[index + 1], (table_count - index) * sizeof *table);
    }
    pthread_rwlock_unlock(&table_lock);
    return range;
}

static bool awaits_launch(const struct range *range) {
    return range->graph != NULL && !atomic_load(&range->graph->backed);
}

static bool find(uint64_t address, struct range *found, bool any) {
    pthread_rwlock_rdlock(&table_lock);
    const struct range *range = holder_of(address);
    if (range != NULL && !any && (range->freed || awaits_launch(range))) range = NULL;
    if (range != NULL) *found = *range;
    pthread_rwlock_unlock(&table_lock);
    return range != NULL;
}

bool memory_find(uint64_t address, struct range *found) {
    return find(address, found, false);
}

bool memory_find_any(uint64_t address, struct range *found) {
    return find(address, found, true);
}

bool memory_awaits_launch(uint64_t address) {
    pthread_rwlock_rdlock(&table_lock);
    const struct range *range = holder_of(address);
    const bool awaits = range != NULL && awaits_launch(range);
    pthread_rwlock_unlock(&table_lock);
    return awaits;
}

void memory_for_each(uint64_t start, uint64_t bytes, bool (*visit)(struct range *, void *),
                     void *argument) {
    pthread_rwlock_wrlock(&table_lock);
    for (size_t i = first_after(start); i < table_count && table[i]->start < start + bytes; i++) {
        if (!visit(table[i], argument)) break;
    }
    pthread_rwlock_unlock(&table_lock);
}

static bool pool_reached_by(const struct pool *pool, uint32_t device) {
    return (atomic_load(&pool->access_mask) >> device & 1) != 0;
}

CUmemAccess_flags memory_access_of(const struct range *range, uint32_t device) {
    if (range->kind == RANGE_POOLED)
        return pool_reached_by(range->pool, device) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (range->kind != RANGE_MAPPING) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if ((range->access_mask >> device & 1) == 0) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return (range->reader_mask >> device & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                   : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static bool within_reach(const struct range *range, const struct context *context) {
    if (range->kind == RANGE_MAPPING) return (range->access_mask >> context->device & 1) != 0;
    if (range->kind == RANGE_POOLED) return pool_reached_by(range->pool, context->device);
    if (range->kind != RANGE_ALLOCATION) return true;
    if (range->device == context->device) return true;
    return (atomic_load(&context->peers) >> range->device & 1) != 0;
}

static bool may_write(const struct range *range, const struct context *context) {
    bool only_reads = context != NULL && (range->reader_mask >> context->device & 1) != 0;
    return !range->read_only && !only_reads;
}

/* Memory of a graph is there between its allocation and its free. */
static bool is_there(const struct range *range) {
    return range->graph == NULL || atomic_load(&range->graph->live);
}

enum direction { READ, WRITE, LOOK, CHECK }; /* CHECK: what is freed does not count */

/* Call with the table locked. `context` NULL: a copy engine, which reaches every mapped byte. */
static bool move_bytes(const struct context *context, uint64_t address, unsigned char *buffer,
                       uint64_t bytes, enum direction direction) {
    const bool moves = direction == READ || direction == WRITE;
    while (bytes > 0) {
        const struct range *range = holder_of(address);
        if (range == NULL) return false;
        if (context != NULL && !within_reach(range, context)) return false;
        if (range->kind == RANGE_MAPPING && range->access_mask == 0) return false;
        if (direction == WRITE && !may_write(range, context)) return false;
        if (direction == CHECK && range->freed) return false;
        if (moves && !is_there(range)) return false;
        uint64_t offset = address - range->start;
        uint64_t part = range->bytes - offset < bytes ? range->bytes - offset : bytes;
        if (range->managed != NULL && context != NULL && moves)
            managed_touch(range, address, part, context);
        if (direction == READ) memcpy(buffer, range->storage + offset, part);
        if (direction == WRITE) memcpy(range->storage + offset, buffer, part);
        if (moves) buffer += part;
        address += part;
        bytes -= part;
    }
    return true;
}

static bool move_locked(const struct context *context, uint64_t address, void *buffer,
                        uint64_t bytes, enum direction direction) {
    pthread_rwlock_rdlock(&table_lock);
    bool moved = move_bytes(context, address, buffer, bytes, direction);
    pthread_rwlock_unlock(&table_lock);
    return moved;
}

bool memory_read(const struct context *context, uint64_t address, void *to, size_t bytes) {
    return move_locked(context, address, to, bytes, READ);
}

bool memory_write(const struct context *context, uint64_t address, const void *from, size_t bytes) {
    return move_locked(context, address, (void *)(uintptr_t)from, bytes, WRITE);
}

bool memory_reachable(const struct context *context, uint64_t address, uint64_t bytes) {
    return move_locked(context, address, NULL, bytes, LOOK);
}

bool memory_copyable(uint64_t address, uint64_t bytes) {
    return move_locked(NULL, address, NULL, bytes, CHECK);
}

bool memory_is_there(uint64_t address, uint64_t bytes) {
    return move_locked(NULL, address, NULL, bytes, LOOK);
}

bool memory_mappings_reachable(const struct context *context, uint64_t address, uint64_t bytes) {
    bool reachable = true;
    pthread_rwlock_rdlock(&table_lock);
    for (size_t i = first_after(address); i < table_count && table[i]->start < address + bytes; i++)
        reachable &= (table[i]->kind != RANGE_MAPPING && table[i]->kind != RANGE_POOLED) ||
                     within_reach(table[i], context);
    pthread_rwlock_unlock(&table_lock);
    return reachable;
}

/* Pages that nobody wrote to stay holes. */
static bool copy_to_file(const unsigned char *storage, size_t bytes, int fd) {
    static const unsigned char zeros[4096];
    for (size_t at = 0; at < bytes; at += sizeof zeros) {
        if (memcmp(storage + at, zeros, sizeof zeros) == 0) continue;
        if (pwrite(fd, storage + at, sizeof zeros, (off_t)at) != (ssize_t)sizeof zeros)
            return false;
    }
    return true;
}

bool memory_storage_share(unsigned char *storage, size_t bytes, int fd) {
    pthread_rwlock_wrlock(&table_lock);
    bool shared =
        copy_to_file(storage, bytes, fd) &&
        mmap(storage, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    pthread_rwlock_unlock(&table_lock);
    return shared;
}

void memory_free_range(struct range *range) {
    switch (range->kind) {
        case RANGE_ALLOCATION:
            memory_storage_give(range->storage, range->bytes);
            address_give(range->start);
            memory_discharge(range->device, range->bytes);
            break;
        case RANGE_MANAGED:
        case RANGE_HOST:
            managed_close(range);
            memory_storage_give(range->storage, range->bytes);
            break;
        case RANGE_MAPPING:
            chunk_drop(range->chunk);
            break;
        case RANGE_POOLED: /* the pool has the rest */
        case RANGE_REGISTERED:
            break;
    }
    free(range);
}

/* The first range from `from` on that the context owns, out of the table. */
static struct range *remove_owned(const struct context *context) {
    struct range *found = NULL;
    pthread_rwlock_wrlock(&table_lock);
    for (size_t i = 0; i < table_count && found == NULL; i++) {
        if (table[i]->context != context || table[i]->context_id != context->id) continue;
        found = table[i];
        table_count--;
        memmove(&table[i], &table[i + 1], (table_count - i) * sizeof *table);
    }
    pthread_rwlock_unlock(&table_lock);
    return found;
}

void memory_release_context(struct context *context) {
    for (;;) {
        struct range *range = remove_owned(context);
        if (range == NULL) return;
        memory_free_range(range);
    }
}

void memory_journal(uint32_t kind, uint32_t device, uint64_t bytes, const char *name) {
    uint64_t now = segment_now_ns();
    struct journal_record record = {.submitted_ns = now,
                                    .started_ns = now,
                                    .ended_ns = now,
                                    .pid = process_number,
                                    .device = device,
                                    .kind = kind,
                                    .amount = bytes};
    journal_name(&record, name);
    journal_append(&record);
}
