#include "swap/host_arena.h"

#include <sys/mman.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/log.h"
#include "device/contexts.h"
#include "memory/chunks.h"
#include "memory/registry.h"
#include "swap/cgroup.h"
#include "swap/prefault.h"

#define GRANULES_PER_SEGMENT (HOST_ARENA_SEGMENT_BYTES / CHUNK_GRANULE)
#define ROOM_IS_FRESH_NS 10000000u
#define REFUSED_NS 1000000000u

_Static_assert(GRANULES_PER_SEGMENT == 32, "a segment's granules are the bits of one word");

struct segment {
    char *base;
    uint32_t taken;   /* a bit for each granule */
    uint64_t context; /* the generation of that in which it is registered; 0: no more */
};

/* Guarded by LOCK_MEMORY. */
static struct segment *segments;
static size_t segments_used, segments_room;
static uint64_t taken_bytes;
static bool has_upcoming;
static struct cgroup_host system_host; /* as read, less what was taken since */
static uint64_t system_host_at_ns;
static uint64_t refused_until_ns; /* the system or the driver gave nothing */

/* The segment after the one that is being made ready: its pages are made meanwhile. The mover's. */
static char *upcoming;
static struct prefault upcoming_work;

/* ---- counting; with LOCK_MEMORY held -----------------------------------------------------------
 */

static uint64_t free_bytes(void) {
    return segments_used * HOST_ARENA_SEGMENT_BYTES - taken_bytes;
}

/* Segments that can still be had. */
static uint64_t further_segments(void) {
    if (clock_now_ns() < refused_until_ns) return has_upcoming;
    return has_upcoming + system_host.room_bytes / HOST_ARENA_SEGMENT_BYTES;
}

/* Takes the lock; what the system leaves is known of late. */
static void lock_with_fresh_room(void) {
    const uint64_t now_ns = clock_now_ns();
    lock_take(LOCK_MEMORY);
    if (now_ns - system_host_at_ns < ROOM_IS_FRESH_NS) return;
    system_host_at_ns = now_ns;
    lock_release(LOCK_MEMORY);
    const struct cgroup_host fresh = cgroup_look(UINT64_MAX);
    lock_take(LOCK_MEMORY);
    system_host = fresh;
}

uint64_t host_arena_free(void) {
    HOLD(LOCK_MEMORY);
    return free_bytes();
}

uint64_t host_arena_system_room(void) {
    lock_with_fresh_room();
    const uint64_t bytes = system_host.room_bytes;
    lock_release(LOCK_MEMORY);
    return bytes;
}

uint64_t host_arena_limit(void) {
    HOLD(LOCK_MEMORY);
    return system_host.limit;
}

bool host_arena_is_short(void) {
    lock_with_fresh_room();
    const bool is_short = system_host.is_short;
    lock_release(LOCK_MEMORY);
    return is_short;
}

/* ---- segments ---------------------------------------------------------------------------------
 */

/* Addresses on the border of a huge page; nothing is taken from the system yet. */
static char *map_segment(void) {
    const size_t bytes = HOST_ARENA_SEGMENT_BYTES + CHUNK_GRANULE;
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    char *base = mapped + (CHUNK_GRANULE - (uintptr_t)mapped % CHUNK_GRANULE) % CHUNK_GRANULE;
    if (base > mapped) munmap(mapped, (size_t)(base - mapped));
    char *end = base + HOST_ARENA_SEGMENT_BYTES;
    if (mapped + bytes > end) munmap(end, (size_t)(mapped + bytes - end));
    madvise(base, HOST_ARENA_SEGMENT_BYTES, MADV_HUGEPAGE);
    /* A child must have no copy: the device writes to these very pages. */
    if (madvise(base, HOST_ARENA_SEGMENT_BYTES, MADV_DONTFORK) != 0) {
        munmap(base, HOST_ARENA_SEGMENT_BYTES);
        return NULL;
    }
    madvise(base, HOST_ARENA_SEGMENT_BYTES, MADV_DONTDUMP);
    return base;
}

static void note_refusal(const char *what) {
    lock_take(LOCK_MEMORY);
    has_upcoming = false;
    refused_until_ns = clock_now_ns() + REFUSED_NS;
    lock_release(LOCK_MEMORY);
    log_debug("arena: %s, so no more host memory for a while", what);
}

/* Begins to make a further segment's pages, where the system leaves room for one. Others of the
 * group may do the same, so that each time it is looked anew. */
static bool begin_upcoming(uint64_t left_bytes) {
    if (upcoming) return true;
    const uint64_t enough_bytes = HOST_ARENA_SEGMENT_BYTES + left_bytes;
    const struct cgroup_host now = cgroup_look(enough_bytes);
    lock_take(LOCK_MEMORY);
    const bool has_room =
        clock_now_ns() >= refused_until_ns && now.room_bytes >= enough_bytes;
    if (!has_room)
        system_host.room_bytes = now.room_bytes;
    else if (system_host.room_bytes >= HOST_ARENA_SEGMENT_BYTES)
        system_host.room_bytes -= HOST_ARENA_SEGMENT_BYTES;
    has_upcoming = has_room;
    lock_release(LOCK_MEMORY);
    if (!has_room) return false;
    upcoming = map_segment();
    if (upcoming == NULL) {
        note_refusal("no address range");
        return false;
    }
    prefault_begin(&upcoming_work, upcoming, HOST_ARENA_SEGMENT_BYTES);
    return true;
}

/* The upcoming segment with all its pages; NULL when the system has too few. */
static char *end_upcoming(void) {
    char *base = upcoming;
    upcoming = NULL;
    lock_take(LOCK_MEMORY);
    has_upcoming = false;
    lock_release(LOCK_MEMORY);
    if (prefault_end(&upcoming_work)) return base;
    munmap(base, HOST_ARENA_SEGMENT_BYTES);
    note_refusal("no pages");
    return NULL;
}

/* Needs a current context, which then owns the registration; the others can use it as well. The
 * process may have begun to end while pages were made. `*is_others`: it is registered already, by a
 * context that ends just now. */
static uint64_t register_segment(char *base, bool *is_others) {
    const struct driver *cuda = driver_get();
    const uint64_t context = contexts_current_generation();
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    if (cuda == NULL || !ending_driver_use_begin()) return 0;
    if (context != 0)
        result = cuda->host_register(base, HOST_ARENA_SEGMENT_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    ending_driver_use_end();
    *is_others = result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (result == CUDA_SUCCESS) return context;
    log_debug("arena: the driver answers %d to a registration", (int)result);
    return 0;
}

/* While the process ends it keeps what is registered. */
static void give_to_system(char *base, bool is_registered) {
    if (is_registered) {
        if (!ending_driver_use_begin()) return;
        driver_get()->host_unregister(base);
        ending_driver_use_end();
    }
    munmap(base, HOST_ARENA_SEGMENT_BYTES);
}

static bool add_segment(char *base, uint64_t context) {
    HOLD(LOCK_MEMORY);
    const bool added = ARRAY_MAKE_ROOM(segments, segments_used, 1, segments_room);
    if (added) segments[segments_used++] = (struct segment){.base = base, .context = context};
    return added;
}

bool host_arena_prepare(uint64_t bytes, uint64_t left_bytes) {
    if (host_arena_free() >= bytes || !begin_upcoming(left_bytes)) return false;
    char *base = end_upcoming();
    if (base == NULL) return false;
    /* Pages of the one after it are made while the driver registers this one. */
    if (host_arena_free() + HOST_ARENA_SEGMENT_BYTES < bytes) begin_upcoming(left_bytes);
    bool is_others = false; /* then those are other pages, which were at this address before */
    const uint64_t context = register_segment(base, &is_others);
    if (context && add_segment(base, context)) return true;
    give_to_system(base, context != 0);
    note_refusal("no registration");
    return false;
}

/* Takes a free segment out of the table; false when all hold something. */
static bool remove_free(struct segment *removed) {
    bool found = false;
    HOLD(LOCK_MEMORY);
    for (size_t i = segments_used; i-- > 0 && !found;) {
        if (segments[i].taken) continue;
        found = true;
        *removed = segments[i];
        segments[i] = segments[--segments_used];
    }
    return found;
}

void host_arena_trim(uint64_t bytes) {
    struct segment segment;
    uint64_t given_bytes = 0;
    if (upcoming && bytes == 0) {
        char *base = end_upcoming();
        if (base) munmap(base, HOST_ARENA_SEGMENT_BYTES);
    }
    while (host_arena_free() >= bytes + HOST_ARENA_SEGMENT_BYTES && remove_free(&segment)) {
        give_to_system(segment.base, segment.context != 0);
        given_bytes += HOST_ARENA_SEGMENT_BYTES;
    }
    if (given_bytes == 0) return;
    lock_take(LOCK_MEMORY);
    system_host_at_ns = 0; /* there is more of it */
    lock_release(LOCK_MEMORY);
    log_debug("arena: gave %llu bytes back", (unsigned long long)given_bytes);
}

/* ---- granules ---------------------------------------------------------------------------------
 */

static uint32_t mask_of(uint64_t granules) {
    return granules >= GRANULES_PER_SEGMENT ? UINT32_MAX : ((uint32_t)1 << granules) - 1;
}

/* How long the next row of free granules is, from `*at` on, which is moved to it; 0: none. */
static uint32_t next_row(uint32_t taken, uint32_t *at) {
    if (*at >= GRANULES_PER_SEGMENT) return 0;
    const uint32_t rest_free = ~taken >> *at;
    if (rest_free == 0) return 0;
    *at += (uint32_t)__builtin_ctz(rest_free);
    const uint32_t rest_taken = taken >> *at;
    return rest_taken ? (uint32_t)__builtin_ctz(rest_taken) : GRANULES_PER_SEGMENT - *at;
}

/* The shortest row that is long enough, so that long ones are left to long chunks. NULL: none.
 * With LOCK_MEMORY held. */
static struct segment *shortest_row(uint64_t granules, uint32_t *place) {
    struct segment *found = NULL;
    uint32_t shortest = UINT32_MAX, length;
    for (size_t i = 0; i < segments_used && shortest > granules; i++) {
        for (uint32_t at = 0; (length = next_row(segments[i].taken, &at)) > 0; at += length) {
            if (length < granules || length >= shortest) continue;
            shortest = length;
            found = &segments[i];
            *place = at;
        }
    }
    return found;
}

/* A row in a registered segment, or in one that has to be registered anew (`*lapsed`). */
static void *take_row(uint64_t granules, char **lapsed) {
    void *host = NULL;
    uint32_t at = 0;
    HOLD(LOCK_MEMORY);
    struct segment *segment = shortest_row(granules, &at);
    if (segment) {
        segment->taken |= mask_of(granules) << at;
        taken_bytes += granules * CHUNK_GRANULE;
        host = segment->base + at * CHUNK_GRANULE;
        if (segment->context == 0) *lapsed = segment->base;
    }
    return host;
}

static struct segment *segment_of(const void *host) {
    for (size_t i = 0; i < segments_used; i++) {
        const char *base = segments[i].base;
        if ((const char *)host >= base && (const char *)host < base + HOST_ARENA_SEGMENT_BYTES)
            return &segments[i];
    }
    return NULL;
}

void *host_arena_take(uint64_t bytes) {
    char *lapsed = NULL;
    const uint64_t granules = bytes / CHUNK_GRANULE;
    if (granules == 0 || granules > GRANULES_PER_SEGMENT) return NULL;
    void *host = take_row(granules, &lapsed);
    if (host == NULL || lapsed == NULL) return host;
    bool is_others = false;
    const uint64_t context = register_segment(lapsed, &is_others);
    if (is_others) return host; /* for now; it is registered anew when next used */
    if (context == 0) {
        host_arena_give(host, bytes);
        return NULL;
    }
    HOLD(LOCK_MEMORY);
    struct segment *segment = segment_of(lapsed);
    if (segment) segment->context = context;
    return host;
}

void host_arena_give(void *host, uint64_t bytes) {
    if (host == NULL) return;
    HOLD(LOCK_MEMORY);
    struct segment *segment = segment_of(host);
    if (segment) {
        const uint64_t at = (uint64_t)((char *)host - segment->base) / CHUNK_GRANULE;
        segment->taken &= ~(mask_of(bytes / CHUNK_GRANULE) << at);
        taken_bytes -= bytes;
    }
}

/* ---- room -------------------------------------------------------------------------------------
 */

/* Free rows by their length, and what of the memory that may leave has been laid into them. */
struct laying {
    uint64_t rows[GRANULES_PER_SEGMENT + 1];
    uint64_t laid_bytes;
    bool ends; /* a chunk found none: those behind it wait for it */
};

static void count_rows(struct laying *laying) {
    uint32_t length;
    for (size_t i = 0; i < segments_used; i++)
        for (uint32_t at = 0; (length = next_row(segments[i].taken, &at)) > 0; at += length)
            laying->rows[length]++;
    laying->rows[GRANULES_PER_SEGMENT] += further_segments();
}

/* As take_row would. */
static void lay(const struct chunk *chunk, void *argument) {
    struct laying *laying = argument;
    const uint64_t granules = chunk->bytes / CHUNK_GRANULE;
    uint64_t length = granules;
    if (laying->ends) return;
    while (length <= GRANULES_PER_SEGMENT && laying->rows[length] == 0)
        length++;
    laying->ends = length > GRANULES_PER_SEGMENT;
    if (laying->ends) return;
    laying->rows[length]--;
    laying->rows[length - granules]++;
    laying->laid_bytes += chunk->bytes;
}

uint64_t host_arena_room(void) {
    struct laying laying = {0};
    uint64_t back_bytes = 0;
    bool all = true;
    lock_with_fresh_room();
    const uint64_t bytes = free_bytes() + further_segments() * HOST_ARENA_SEGMENT_BYTES;
    count_rows(&laying);
    lock_release(LOCK_MEMORY);
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        back_bytes += chunks_sums_of(device).bytes_back;
        if (chunks_sums_of(device).bytes_movable == 0) continue;
        laying.ends = false;
        chunks_visit_leaving(device, lay, &laying);
        all = all && !laying.ends;
    }
    return back_bytes + (all ? bytes : laying.laid_bytes);
}

void host_arena_forget_context(uint64_t context) {
    HOLD(LOCK_MEMORY);
    for (size_t i = 0; i < segments_used; i++)
        if (segments[i].context == context) segments[i].context = 0;
}

void host_arena_after_fork(void) {
    segments_used = 0;
    taken_bytes = 0;
    upcoming = NULL;
    has_upcoming = false;
    system_host_at_ns = refused_until_ns = 0;
}
