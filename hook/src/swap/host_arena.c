#include "swap/host_arena.h"

#include <sys/mman.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/log.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "memory/chunks.h"
#include "memory/registry.h"
#include "swap/cgroup.h"
#include "swap/managed_room.h"
#include "swap/prefault.h"

#define GRANULES_PER_SEGMENT (HOST_ARENA_SEGMENT_BYTES / CHUNK_GRANULE)
#define ROOM_IS_FRESH_NS 100000000u
#define LITTLE_IS_FRESH_NS 10000000u /* others may be waiting for each segment */
#define REFUSED_NS 1000000000u
#define MADE_BYTES_LEAST (2 * HOST_ARENA_SEGMENT_BYTES)
#define MADE_BYTES_MOST (32 * HOST_ARENA_SEGMENT_BYTES)

_Static_assert(GRANULES_PER_SEGMENT == 32, "a segment's granules are the bits of one word");

struct segment {
    char *base;
    uint64_t bytes;
    uint32_t taken;   /* a bit for each granule; set for those beyond its end */
    uint64_t context; /* the generation of that in which it is registered; 0: no more */
    bool is_unpinned; /* the driver would not register it: copies go through its own buffers */
};

/* Guarded by LOCK_MEMORY. */
static struct segment *segments;
static size_t segments_used, segments_room;
static uint64_t segments_bytes, taken_bytes;
static uint64_t upcoming_bytes;        /* of the segment that is being made ready; 0: none */
static struct cgroup_host system_host; /* as read, less what was taken since */
static uint64_t system_host_at_ns;
static uint64_t refused_until_ns; /* the system or the driver gave nothing */
static struct {
    uint64_t bytes, ns;
} made; /* segments of late, and how long that took */

/* The segment whose pages are being made, while the driver may register the one before. The
 * mover's. */
static char *upcoming;
static struct prefault upcoming_work;

/* ---- counting; with LOCK_MEMORY held -----------------------------------------------------------
 */

static uint64_t free_bytes(void) {
    return segments_bytes - taken_bytes;
}

/* What can still be had of the system. */
static uint64_t further_bytes(void) {
    return clock_now_ns() < refused_until_ns ? 0 : system_host.room_bytes;
}

/* Takes the lock; what the system leaves is known of late. */
static void lock_with_fresh_room(void) {
    const uint64_t now_ns = clock_now_ns();
    lock_take(LOCK_MEMORY);
    const bool is_little = system_host.room_bytes < HOST_ARENA_LITTLE_BYTES;
    if (now_ns - system_host_at_ns < (is_little ? LITTLE_IS_FRESH_NS : ROOM_IS_FRESH_NS)) return;
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

uint64_t host_arena_begun(void) {
    HOLD(LOCK_MEMORY);
    return upcoming_bytes;
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

static void note_refusal(const char *what) {
    lock_take(LOCK_MEMORY);
    if (upcoming == NULL) upcoming_bytes = 0;
    refused_until_ns = clock_now_ns() + REFUSED_NS;
    lock_release(LOCK_MEMORY);
    log_debug("arena: %s, so no more host memory for a while", what);
}

/* Chunks that leave next and find no row. */
struct need {
    uint64_t first_bytes; /* of the first of them; 0: all find one */
    uint64_t bytes;       /* of as many as fit into a segment */
};

/* Where little is left, a segment is no larger than its first chunk: what is left over in it would
 * be lost to others. */
static uint64_t segment_bytes_for(struct need need, uint64_t left_bytes) {
    return left_bytes < 2 * HOST_ARENA_SEGMENT_BYTES ? need.first_bytes : need.bytes;
}

/* Begins to make a further segment's pages, where the system leaves room for one, and `left_bytes`
 * beside it. Others of the group may do the same, so that each time it is looked anew. */
static bool begin_upcoming(struct need need, uint64_t left_bytes) {
    if (upcoming) return true;
    const struct cgroup_host now = cgroup_look(2 * HOST_ARENA_SEGMENT_BYTES + left_bytes);
    const uint64_t bytes = segment_bytes_for(need, now.room_bytes);
    lock_take(LOCK_MEMORY);
    const bool has_room =
        clock_now_ns() >= refused_until_ns && now.room_bytes >= bytes + left_bytes;
    system_host.room_bytes = now.room_bytes - (has_room ? bytes : 0);
    upcoming_bytes = has_room ? bytes : 0;
    lock_release(LOCK_MEMORY);
    if (!has_room) return false;
    upcoming = prefault_map(bytes);
    if (upcoming == NULL) {
        note_refusal("no address range");
        return false;
    }
    prefault_begin(&upcoming_work, upcoming, bytes);
    return true;
}

/* The upcoming segment with all its pages; without a base when the system has too few. */
static struct segment end_upcoming(void) {
    struct segment ready = {.base = upcoming};
    upcoming = NULL;
    lock_take(LOCK_MEMORY);
    ready.bytes = upcoming_bytes;
    upcoming_bytes = 0;
    lock_release(LOCK_MEMORY);
    if (prefault_end(&upcoming_work)) return ready;
    munmap(ready.base, ready.bytes);
    note_refusal("no pages");
    return (struct segment){0};
}

enum registering {
    REGISTERED,
    REGISTERED_ALREADY, /* by a context that ends just now: other pages, which were there before */
    REGISTERED_NOT,     /* there is no context to do it in, or the process ends */
    REGISTERED_REFUSED, /* no more memory can be pinned */
};

/* Needs a current context, which then owns the registration; the others can use it as well. The
 * process may have begun to end while pages were made. */
static enum registering register_segment(struct segment *segment) {
    const struct driver *cuda = driver_get();
    const uint64_t context = contexts_current_generation();
    if (cuda == NULL || context == 0 || !ending_driver_use_begin()) return REGISTERED_NOT;
    const CUresult result =
        cuda->host_register(segment->base, segment->bytes, CU_MEMHOSTREGISTER_PORTABLE);
    ending_driver_use_end();
    if (result == CUDA_SUCCESS) {
        segment->context = context;
        return REGISTERED;
    }
    log_debug("arena: the driver answers %d to a registration", (int)result);
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return REGISTERED_ALREADY;
    const bool is_unusable =
        failure_is_sticky((int)result) || result == CUDA_ERROR_INVALID_CONTEXT ||
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_DEINITIALIZED;
    return is_unusable ? REGISTERED_NOT : REGISTERED_REFUSED;
}

/* While the process ends it keeps what is registered. */
static void give_to_system(const struct segment *segment) {
    if (segment->context != 0) {
        if (!ending_driver_use_begin()) return;
        driver_get()->host_unregister(segment->base);
        ending_driver_use_end();
    }
    munmap(segment->base, segment->bytes);
}

static uint32_t mask_of(uint64_t granules) {
    return granules >= GRANULES_PER_SEGMENT ? UINT32_MAX : ((uint32_t)1 << granules) - 1;
}

/* Those that are not there. */
static uint32_t beyond(const struct segment *segment) {
    return ~mask_of(segment->bytes / CHUNK_GRANULE);
}

static bool add_segment(struct segment segment) {
    HOLD(LOCK_MEMORY);
    const bool added = ARRAY_MAKE_ROOM(segments, segments_used, 1, segments_room);
    segment.taken = beyond(&segment);
    if (added) {
        segments[segments_used++] = segment;
        segments_bytes += segment.bytes;
    }
    return added;
}

/* So that what was long ago counts for little. */
static void note_made(uint64_t bytes, uint64_t since_ns) {
    HOLD(LOCK_MEMORY);
    made.bytes += bytes;
    made.ns += clock_now_ns() - since_ns;
    while (made.bytes > MADE_BYTES_MOST) {
        made.bytes /= 2;
        made.ns /= 2;
    }
}

uint64_t host_arena_ready_rate(void) {
    HOLD(LOCK_MEMORY);
    const bool is_known = made.bytes >= MADE_BYTES_LEAST && made.ns > 0;
    return is_known ? (uint64_t)((double)made.bytes * 1e9 / (double)made.ns) : 0;
}

uint64_t host_arena_unpinned(void) {
    uint64_t bytes = 0;
    HOLD(LOCK_MEMORY);
    for (size_t i = 0; i < segments_used; i++)
        if (segments[i].is_unpinned)
            bytes += CHUNK_GRANULE *
                     (uint64_t)__builtin_popcount(segments[i].taken & ~beyond(&segments[i]));
    return bytes;
}

static struct need need_beside(uint64_t row_bytes, int device, uint64_t chunk_bytes);
static bool give_way(uint64_t bytes);

/* Pages of the next segment are made while the driver registers this one. Where little is left, it
 * is not known yet how large that has to be. */
static void begin_after(const struct segment *segment, int device, uint64_t left_bytes) {
    struct need need = need_beside(segment->bytes, device, 0);
    need.first_bytes = need.bytes;
    if (need.bytes > 0) begin_upcoming(need, left_bytes + HOST_ARENA_SEGMENT_BYTES);
}

bool host_arena_prepare(uint64_t bytes, int device, uint64_t chunk_bytes, uint64_t left_bytes) {
    const uint64_t began_ns = clock_now_ns();
    struct need need = need_beside(0, device, chunk_bytes);
    if (need.bytes == 0) need = (struct need){HOST_ARENA_SEGMENT_BYTES, HOST_ARENA_SEGMENT_BYTES};
    if (host_arena_free() >= bytes) return false;
    if (!begin_upcoming(need, left_bytes) &&
        !(give_way(chunk_bytes) && begin_upcoming(need, left_bytes)))
        return false;
    struct segment segment = end_upcoming();
    if (segment.base == NULL) return false;
    if (host_arena_free() + segment.bytes < bytes) begin_after(&segment, device, left_bytes);
    const enum registering answer = register_segment(&segment);
    segment.is_unpinned = answer == REGISTERED_REFUSED;
    if ((answer == REGISTERED || segment.is_unpinned) && add_segment(segment)) {
        note_made(segment.bytes, began_ns);
        return true;
    }
    give_to_system(&segment);
    note_refusal("no registration");
    return false;
}

/* Takes a free segment of so many bytes at most out of the table; without a current context only
 * one that is registered nowhere. False: there is none. */
static bool remove_free(struct segment *removed, uint64_t bytes_max, bool has_context) {
    bool found = false;
    HOLD(LOCK_MEMORY);
    for (size_t i = segments_used; i-- > 0 && !found;) {
        if (segments[i].taken != beyond(&segments[i]) || segments[i].bytes > bytes_max) continue;
        if (!has_context && segments[i].context != 0) continue;
        found = true;
        *removed = segments[i];
        segments[i] = segments[--segments_used];
        segments_bytes -= removed->bytes;
    }
    return found;
}

void host_arena_trim(uint64_t bytes, bool has_context) {
    struct segment segment;
    uint64_t given_bytes = 0;
    if (upcoming && bytes == 0) {
        segment = end_upcoming();
        if (segment.base) munmap(segment.base, segment.bytes);
        given_bytes += segment.bytes;
    }
    for (uint64_t free_now; (free_now = host_arena_free()) > bytes;) {
        if (!remove_free(&segment, free_now - bytes, has_context)) break;
        give_to_system(&segment);
        given_bytes += segment.bytes;
    }
    if (given_bytes == 0) return;
    lock_take(LOCK_MEMORY);
    system_host_at_ns = 0; /* there is more of it */
    lock_release(LOCK_MEMORY);
    log_debug("arena: gave %llu bytes back", (unsigned long long)given_bytes);
}

/* ---- granules ---------------------------------------------------------------------------------
 */

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
static struct segment *shortest_row(uint64_t granules, bool unpinned, uint32_t *place) {
    struct segment *found = NULL;
    uint32_t shortest = UINT32_MAX, length;
    for (size_t i = 0; i < segments_used && shortest > granules; i++) {
        if (segments[i].is_unpinned != unpinned) continue;
        for (uint32_t at = 0; (length = next_row(segments[i].taken, &at)) > 0; at += length) {
            if (length < granules || length >= shortest) continue;
            shortest = length;
            found = &segments[i];
            *place = at;
        }
    }
    return found;
}

/* A row in a registered segment, or in one that has to be registered anew (`lapsed`). */
static void *take_row(uint64_t granules, struct segment *lapsed) {
    void *host = NULL;
    uint32_t at = 0;
    HOLD(LOCK_MEMORY);
    struct segment *segment = shortest_row(granules, false, &at);
    if (segment == NULL) segment = shortest_row(granules, true, &at);
    if (segment) {
        segment->taken |= mask_of(granules) << at;
        taken_bytes += granules * CHUNK_GRANULE;
        host = segment->base + at * CHUNK_GRANULE;
        if (segment->context == 0 && !segment->is_unpinned) *lapsed = *segment;
    }
    return host;
}

static struct segment *segment_of(const void *host) {
    for (size_t i = 0; i < segments_used; i++) {
        const char *base = segments[i].base;
        if ((const char *)host >= base && (const char *)host < base + segments[i].bytes)
            return &segments[i];
    }
    return NULL;
}

void *host_arena_take(uint64_t bytes) {
    struct segment lapsed = {0};
    const uint64_t granules = bytes / CHUNK_GRANULE;
    if (granules == 0 || granules > GRANULES_PER_SEGMENT) return NULL;
    void *host = take_row(granules, &lapsed);
    if (host == NULL || lapsed.base == NULL) return host;
    const enum registering answer = register_segment(&lapsed);
    if (answer == REGISTERED_ALREADY) return host; /* it is registered anew when next used */
    if (answer == REGISTERED_NOT) {
        host_arena_give(host, bytes);
        return NULL;
    }
    HOLD(LOCK_MEMORY);
    struct segment *segment = segment_of(lapsed.base);
    if (segment) {
        segment->context = lapsed.context;
        segment->is_unpinned = answer == REGISTERED_REFUSED;
    }
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
    uint64_t segments[GRANULES_PER_SEGMENT + 1]; /* of those, what are whole segments */
    uint64_t further_bytes;                      /* that can be had of the system */
    uint64_t laid_bytes;
    bool has_ended; /* on some device a chunk found none: those behind it wait for it */
    struct need need;
    uint64_t awaited_bytes; /* the need begins with a chunk of so many; 0: with any, or it did */
    bool is_full;           /* no more go into one segment */
};

static void count_rows(struct laying *laying) {
    uint32_t length;
    for (size_t i = 0; i < segments_used; i++) {
        const struct segment *segment = &segments[i];
        for (uint32_t at = 0; (length = next_row(segment->taken, &at)) > 0; at += length)
            laying->rows[length]++;
        laying->segments[segment->bytes / CHUNK_GRANULE] += segment->taken == beyond(segment);
    }
    laying->rows[upcoming_bytes / CHUNK_GRANULE] += upcoming_bytes > 0;
    laying->segments[upcoming_bytes / CHUNK_GRANULE] += upcoming_bytes > 0;
    laying->further_bytes = further_bytes();
}

static bool take_from_system(struct laying *laying, uint64_t bytes) {
    const bool has_them = laying->further_bytes >= bytes;
    if (has_them) laying->further_bytes -= bytes;
    return has_them;
}

static uint64_t shortest_of(const struct laying *laying, uint64_t granules) {
    while (granules <= GRANULES_PER_SEGMENT && laying->rows[granules] == 0)
        granules++;
    return granules;
}

/* As take_row would. */
static bool lay_in_row(struct laying *laying, uint64_t bytes) {
    const uint64_t granules = bytes / CHUNK_GRANULE;
    const uint64_t length = shortest_of(laying, granules);
    if (length > GRANULES_PER_SEGMENT) return false;
    laying->rows[length]--;
    laying->segments[length] -= laying->segments[length] > 0;
    laying->rows[length - granules]++;
    return true;
}

/* As give_way would. */
static bool lay_in_given(struct laying *laying, uint64_t bytes) {
    struct laying given = *laying;
    for (uint64_t length = 1; length <= GRANULES_PER_SEGMENT; length++) {
        given.further_bytes += given.segments[length] * length * CHUNK_GRANULE;
        given.rows[length] -= given.segments[length];
        given.segments[length] = 0;
    }
    const bool has_them = take_from_system(&given, bytes);
    if (has_them) *laying = given;
    return has_them;
}

/* Chunks fill a segment that is made for them. */
static bool lay_anywhere(struct laying *laying, uint64_t bytes) {
    return lay_in_row(laying, bytes) || take_from_system(laying, bytes) ||
           lay_in_given(laying, bytes);
}

static bool lay(const struct chunk *chunk, void *argument) {
    struct laying *laying = argument;
    const bool is_laid = chunk->managed_at != 0
                             ? take_from_system(laying, managed_room_bytes(chunk))
                             : chunk->is_empty || lay_anywhere(laying, chunk->bytes);
    if (is_laid) laying->laid_bytes += chunk->bytes;
    return is_laid;
}

/* Among the rows that there are, or to the need; what is managed or empty needs none. */
static bool lay_to_need(const struct chunk *chunk, void *argument) {
    struct laying *laying = argument;
    struct need *need = &laying->need;
    if (chunk->managed_at != 0 || chunk->is_empty) return !laying->is_full;
    if (laying->awaited_bytes > 0 && chunk->bytes != laying->awaited_bytes) return true;
    if (lay_in_row(laying, chunk->bytes)) return true;
    laying->awaited_bytes = 0;
    laying->is_full |= need->bytes + chunk->bytes > HOST_ARENA_SEGMENT_BYTES;
    if (laying->is_full) return false;
    if (need->first_bytes == 0) need->first_bytes = chunk->bytes;
    need->bytes += chunk->bytes;
    return true;
}

/* Those of one device; -1: of all. */
static void lay_all(struct laying *laying, int of, bool (*lay_one)(const struct chunk *, void *)) {
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        if (of < 0 || of == device)
            laying->has_ended |= !chunks_visit_leaving(device, lay_one, laying);
}

/* With a row of so many bytes beside those that there are; from a chunk of so many on (0: from the
 * first that finds no row). */
static struct need need_beside(uint64_t row_bytes, int device, uint64_t chunk_bytes) {
    struct laying laying = {.awaited_bytes = chunk_bytes};
    lock_take(LOCK_MEMORY);
    count_rows(&laying);
    lock_release(LOCK_MEMORY);
    laying.rows[row_bytes / CHUNK_GRANULE]++;
    lay_all(&laying, device, lay_to_need);
    const bool is_known = laying.need.bytes > 0 || chunk_bytes == 0;
    return is_known ? laying.need : (struct need){chunk_bytes, chunk_bytes};
}

/* All that is free is too small for a chunk that has to leave: it goes back where the system has
 * room for the chunk then. */
static bool give_way(uint64_t bytes) {
    struct laying laying = {0};
    lock_take(LOCK_MEMORY);
    count_rows(&laying);
    lock_release(LOCK_MEMORY);
    const bool helps = !take_from_system(&laying, bytes) && lay_in_given(&laying, bytes);
    if (helps) host_arena_trim(0, true);
    return helps;
}

uint64_t host_arena_room(void) {
    struct laying laying = {0};
    uint64_t back_bytes = 0;
    lock_with_fresh_room();
    count_rows(&laying);
    const uint64_t bytes = free_bytes() + upcoming_bytes + laying.further_bytes;
    lock_release(LOCK_MEMORY);
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        back_bytes += chunks_sums_of(device).bytes_back;
    lay_all(&laying, -1, lay);
    /* More than there is, where managed memory has its pages already. */
    const bool is_all = !laying.has_ended && bytes > laying.laid_bytes;
    return back_bytes + (is_all ? bytes : laying.laid_bytes);
}

void host_arena_forget_context(uint64_t context) {
    HOLD(LOCK_MEMORY);
    for (size_t i = 0; i < segments_used; i++)
        if (segments[i].context == context) segments[i].context = 0;
}

void host_arena_after_fork(void) {
    segments_used = 0;
    segments_bytes = taken_bytes = upcoming_bytes = 0;
    upcoming = NULL;
    system_host_at_ns = refused_until_ns = 0;
    made.bytes = made.ns = 0;
}
