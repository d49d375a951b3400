#define _GNU_SOURCE
#include "memory/address.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES (1ull << 40)
#define ARENA_BYTES_MIN (1ull << 33)
#define SHARES 256

struct interval {
    uint64_t start;
    uint64_t end;
};

static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of this */
static uint64_t arena_start;
static uint64_t arena_end;
static struct interval *intervals; /* taken, sorted */
static size_t interval_count;
static size_t interval_capacity;
static uint64_t cursor; /* the search goes on where the last one ended */

/* Under a limit on address space a smaller range has to do. */
static bool reserve_arena(void) {
    if (arena_start != 0) return true;
    for (uint64_t bytes = ARENA_BYTES; bytes >= ARENA_BYTES_MIN; bytes /= 2) {
        void *address =
            mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (address == MAP_FAILED) continue;
        madvise(address, bytes, MADV_DONTDUMP);
        arena_start = (uint64_t)(uintptr_t)address;
        arena_end = arena_start + bytes;
        cursor = arena_start;
        return true;
    }
    return false;
}

/* The index of the first interval that ends after `address`. */
static size_t first_after(uint64_t address) {
    size_t low = 0;
    size_t high = interval_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (intervals[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool insert(size_t index, uint64_t start, uint64_t bytes) {
    if (interval_count == interval_capacity) {
        size_t capacity = interval_capacity == 0 ? 256 : 2 * interval_capacity;
        struct interval *grown = realloc(intervals, capacity * sizeof *intervals);
        if (grown == NULL) return false;
        intervals = grown;
        interval_capacity = capacity;
    }
    memmove(&intervals[index + 1], &intervals[index], (interval_count - index) * sizeof *intervals);
    intervals[index] = (struct interval){start, start + bytes};
    interval_count++;
    return true;
}

/* The first gap from `from` on; 0 when there is none before the arena's end. */
static uint64_t find_gap(uint64_t from, uint64_t bytes, uint64_t alignment, size_t *index) {
    uint64_t at = (from + alignment - 1) & ~(alignment - 1);
    for (size_t i = first_after(at);; i++) {
        uint64_t limit = i < interval_count ? intervals[i].start : arena_end;
        if (at <= limit && bytes <= limit - at) {
            *index = i;
            return at;
        }
        if (i >= interval_count) return 0;
        at = (intervals[i].end + alignment - 1) & ~(alignment - 1);
    }
}

static uint64_t take(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
    size_t index = 0;
    uint64_t at = 0;
    if (wanted >= arena_start && wanted < arena_end && wanted % alignment == 0) {
        at = find_gap(wanted, bytes, alignment, &index);
        if (at != wanted) at = 0;
    }
    if (at == 0) {
        at = find_gap(cursor, bytes, alignment, &index);
        if (at == 0) at = find_gap(arena_start, bytes, alignment, &index);
        if (at != 0) cursor = at + bytes;
    }
    return at != 0 && insert(index, at, bytes) ? at : 0;
}

uint64_t address_take(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
    pthread_mutex_lock(&arena_lock);
    uint64_t at = bytes > 0 && reserve_arena() ? take(bytes, alignment, wanted) : 0;
    pthread_mutex_unlock(&arena_lock);
    return at;
}

uint64_t address_share(void) {
    pthread_mutex_lock(&arena_lock);
    const uint64_t bytes = reserve_arena() ? (arena_end - arena_start) / SHARES : 0;
    pthread_mutex_unlock(&arena_lock);
    return bytes;
}

void address_give(uint64_t address) {
    pthread_mutex_lock(&arena_lock);
    size_t index = first_after(address);
    if (index < interval_count && intervals[index].start == address) {
        interval_count--;
        memmove(&intervals[index], &intervals[index + 1],
                (interval_count - index) * sizeof *intervals);
    }
    pthread_mutex_unlock(&arena_lock);
}
