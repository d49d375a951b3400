/* The bytes behind device memory, and what a device is charged for them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/memory.h"
#include "process/process.h"

#define POISON 0xdb
#define KEPT_BYTES_MAX (64u << 20) /* poisoned storage kept for the next taker */
#define KEPT_ENTRIES 64
#define SMALL_BYTES_MAX (1u << 20) /* larger allocations have granules of their own */

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER; /* guards kept and small_bytes */
static struct {
    unsigned char *storage;
    size_t bytes;
} kept[KEPT_ENTRIES];
static size_t kept_bytes;
static uint64_t small_bytes[SIM_DEVICES_MAX];

/* 0 beyond 2^64. */
static size_t round_to_page(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) & ~(page - 1);
}

static unsigned char *take_kept(size_t bytes) {
    unsigned char *storage = NULL;
    pthread_mutex_lock(&kept_lock);
    for (int i = 0; i < KEPT_ENTRIES && storage == NULL; i++) {
        if (kept[i].storage == NULL || kept[i].bytes != bytes) continue;
        storage = kept[i].storage;
        kept[i].storage = NULL;
        kept_bytes -= bytes;
    }
    pthread_mutex_unlock(&kept_lock);
    return storage;
}

static unsigned char *map_storage(size_t bytes) {
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return fresh == MAP_FAILED ? NULL : fresh;
}

/* In huge pages: a device's memory does not fault, so here it should at least not fault often. */
unsigned char *memory_storage_reserve(size_t bytes) {
    if (bytes > SIZE_MAX - MEMORY_GRANULE_BYTES) return NULL;
    unsigned char *fresh = map_storage(bytes + MEMORY_GRANULE_BYTES);
    if (fresh == NULL) return NULL;
    size_t before = (size_t)(-(uintptr_t)fresh & (MEMORY_GRANULE_BYTES - 1));
    unsigned char *storage = fresh + before;
    if (before > 0) munmap(fresh, before);
    munmap(storage + bytes, MEMORY_GRANULE_BYTES - before);
    madvise(storage, bytes, MADV_HUGEPAGE);
    return storage;
}

unsigned char *memory_storage_take(size_t bytes) {
    size_t rounded = round_to_page(bytes);
    if (rounded < bytes) return NULL;
    unsigned char *storage = take_kept(rounded);
    if (storage != NULL) return storage;
    return rounded < MEMORY_GRANULE_BYTES ? map_storage(rounded) : memory_storage_reserve(rounded);
}

/* Only pages that somebody wrote to are worth it: the others read as zero anyway. */
static void poison(unsigned char *storage, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *resident = malloc(bytes / page);
    if (resident == NULL || mincore(storage, bytes, resident) != 0) {
        memset(storage, POISON, bytes);
    } else {
        for (size_t i = 0; i < bytes / page; i++) {
            if ((resident[i] & 1) != 0) memset(storage + i * page, POISON, page);
        }
    }
    free(resident);
}

/* Room for so many bytes among what is kept, charged at once. */
static bool claim_room(size_t bytes) {
    pthread_mutex_lock(&kept_lock);
    bool fits = kept_bytes + bytes <= KEPT_BYTES_MAX;
    if (fits) kept_bytes += bytes;
    pthread_mutex_unlock(&kept_lock);
    return fits;
}

static bool keep(unsigned char *storage, size_t bytes) {
    bool done = false;
    pthread_mutex_lock(&kept_lock);
    for (int i = 0; i < KEPT_ENTRIES && !done; i++) {
        if (kept[i].storage != NULL) continue;
        kept[i].storage = storage;
        kept[i].bytes = bytes;
        done = true;
    }
    if (!done) kept_bytes -= bytes;
    pthread_mutex_unlock(&kept_lock);
    return done;
}

/* Poisoned before anybody can have it again; what is not kept comes back as zeros. */
void memory_storage_give(unsigned char *storage, size_t bytes) {
    size_t rounded = round_to_page(bytes);
    if (claim_room(rounded)) {
        poison(storage, rounded);
        if (keep(storage, rounded)) return;
    }
    munmap(storage, rounded);
}

/* Whole pages that were poisoned stay resident: of large storage there are none. */
void memory_storage_wipe(unsigned char *storage, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = (size_t)(-(uintptr_t)storage & (page - 1));
    if (bytes < before + page) {
        memset(storage, POISON, bytes);
        return;
    }
    const size_t inside = (bytes - before) & ~(page - 1);
    memset(storage, POISON, before);
    memset(storage + before + inside, POISON, bytes - before - inside);
    if (inside > KEPT_BYTES_MAX)
        madvise(storage + before, inside, MADV_DONTNEED);
    else
        poison(storage + before, inside);
}

unsigned char *memory_storage_of_file(int fd, uint64_t offset, size_t bytes) {
    void *storage =
        mmap(NULL, round_to_page(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    return storage == MAP_FAILED ? NULL : storage;
}

void memory_storage_punch(int fd, uint64_t offset, size_t bytes) {
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

static uint64_t granules(uint64_t bytes) {
    return (bytes + MEMORY_GRANULE_BYTES - 1) & ~(MEMORY_GRANULE_BYTES - 1);
}

bool memory_charge(uint32_t device, uint64_t bytes) {
    if (bytes > SMALL_BYTES_MAX)
        return segment_charge(process_segment, process_row, device, granules(bytes));
    pthread_mutex_lock(&kept_lock);
    uint64_t before = granules(small_bytes[device]);
    uint64_t after = granules(small_bytes[device] + ((bytes + 511) & ~511ull));
    bool fits =
        after == before || segment_charge(process_segment, process_row, device, after - before);
    if (fits) small_bytes[device] += (bytes + 511) & ~511ull;
    pthread_mutex_unlock(&kept_lock);
    return fits;
}

void memory_discharge(uint32_t device, uint64_t bytes) {
    if (bytes > SMALL_BYTES_MAX) {
        segment_discharge(process_segment, process_row, device, granules(bytes));
        return;
    }
    pthread_mutex_lock(&kept_lock);
    uint64_t before = granules(small_bytes[device]);
    small_bytes[device] -= (bytes + 511) & ~511ull;
    uint64_t after = granules(small_bytes[device]);
    if (after < before) segment_discharge(process_segment, process_row, device, before - after);
    pthread_mutex_unlock(&kept_lock);
}
