#include "swap/prefault.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE_BYTES ((uint64_t)2 << 20)
#define STACK_BYTES (256 * 1024) /* the sanitizers want that much */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static int cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static bool fault(char *address, uint64_t bytes) {
    if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += page_bytes)
        *(volatile char *)(address + at) = 0;
    return true;
}

static void *run(void *argument) {
    struct prefault_part *part = argument;
    pthread_setname_np(pthread_self(), "gpushare-fault");
    part->failed = !fault(part->address, part->bytes);
    return NULL;
}

char *prefault_map(uint64_t bytes) {
    const size_t more = bytes + GRANULE_BYTES;
    char *mapped = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    char *base = mapped + (GRANULE_BYTES - (uintptr_t)mapped % GRANULE_BYTES) % GRANULE_BYTES;
    if (base > mapped) munmap(mapped, (size_t)(base - mapped));
    char *end = base + bytes;
    if (mapped + more > end) munmap(end, (size_t)(mapped + more - end));
    madvise(base, bytes, MADV_HUGEPAGE);
    /* A child must have no copy: the device writes to these very pages. */
    if (madvise(base, bytes, MADV_DONTFORK) != 0) {
        munmap(base, bytes);
        return NULL;
    }
    madvise(base, bytes, MADV_DONTDUMP);
    return base;
}

static bool start(struct prefault_part *part) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const bool started = pthread_create(&part->thread, &attributes, run, part) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

void prefault_begin(struct prefault *work, void *address, uint64_t bytes) {
    const uint64_t granules = bytes / GRANULE_BYTES;
    uint64_t parts = (uint64_t)cores() / 2;
    if (parts > PREFAULT_THREADS_MAX) parts = PREFAULT_THREADS_MAX;
    if (parts > granules) parts = granules;
    if (parts < 1) parts = 1;
    work->parts_used = (int)parts;
    /* The caller is a thread of ours with all signals blocked, and these inherit that. */
    for (uint64_t i = 0; i < parts; i++) {
        const uint64_t from = granules * i / parts, to = granules * (i + 1) / parts;
        work->parts[i] = (struct prefault_part){
            .address = (char *)address + from * GRANULE_BYTES,
            .bytes = (to - from) * GRANULE_BYTES,
        };
        work->parts[i].has_thread = start(&work->parts[i]);
    }
}

bool prefault_end(struct prefault *work) {
    bool whole = true;
    for (int i = 0; i < work->parts_used; i++) {
        struct prefault_part *part = &work->parts[i];
        if (part->has_thread)
            pthread_join(part->thread, NULL);
        else
            part->failed = !fault(part->address, part->bytes);
        whole = whole && !part->failed;
    }
    work->parts_used = 0;
    return whole;
}
