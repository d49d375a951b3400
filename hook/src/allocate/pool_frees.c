#include "allocate/pool_frees.h"

#include <stdlib.h>

#include "allocate/backing.h"
#include "allocate/making.h"
#include "allocate/memory.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "device/contexts.h"
#include "device/streams.h"
#include "gate/work.h"
#include "memory/chunks.h"
#include "swap/mover.h"
#include "swap/residency.h"

#define LISTED_AT_ONCE 64
#define LOOKS_MAX 8
#define LOOK_PAUSE_NS 100000u

/* ---- names of streams -------------------------------------------------------------------------
 */

/* Each thread has a default stream of its own. */
static uint64_t thread_number(void) {
    static _Atomic uint64_t last = POOLED_FIRST_THREAD;
    static _Thread_local uint64_t number __attribute__((tls_model("initial-exec")));
    if (number == 0) number = atomic_fetch_add(&last, 1) + 1;
    return number;
}

/* `number_of`: streams_number in the program's call on the stream, and afterwards, when another
 * thread may have destroyed it, streams_known_number. */
static bool key_of(void *stream, uint64_t (*number_of)(void *, void **), struct stream_key *key,
                   int *device) {
    if (!streams_is_created(stream)) {
        key->context = contexts_current_generation();
        key->stream = stream == DRIVER_STREAM_PER_THREAD ? thread_number() : 0;
        *device = memory_current_device();
        return key->context != 0 && *device >= 0 && *device < REGISTRY_DEVICES_MAX;
    }
    void *handle = NULL;
    key->stream = number_of(stream, &handle);
    if (key->stream == 0) return false;
    const struct context context = contexts_copy(handle);
    key->context = context.generation;
    *device = context.ordinal;
    return context.generation != 0 && context.failed_result == 0 && *device < REGISTRY_DEVICES_MAX;
}

bool pool_frees_key(struct pooling_stream stream, struct stream_key *key, int *device) {
    void *handle = gate_stream(stream.handle, stream.variant);
    if (streams_capture_anywhere()) {
        const bool is_legacy = handle == NULL || handle == DRIVER_STREAM_LEGACY;
        if (is_legacy || streams_is_capturing(handle)) return false;
    }
    return key_of(handle, streams_number, key, device);
}

static bool is_same(struct stream_key left, struct stream_key right) {
    return left.context == right.context && left.stream == right.stream;
}

/* ---- pools ------------------------------------------------------------------------------------
 */

void pool_frees_drop(struct pool *pool) {
    struct pool *gone = pooled_drop(pool);
    if (gone == NULL) return;
    if (gone->space.bytes > 0) driver_get()->address_free(gone->space.address, gone->space.bytes);
    free(gone);
}

/* The next one is held before this one goes. */
static struct pool *after(struct pool *pool) {
    struct pool *next = pooled_next(pool);
    pool_frees_drop(pool);
    return next;
}

#define FOR_EACH_POOL(pool) for ((pool) = pooled_next(NULL); (pool) != NULL; (pool) = after(pool))

/* Forgets streams of which nothing is left. */
static void tidy(struct pool *pool) {
    struct freer *freer;
    while ((freer = pooled_take_idle(pool)) != NULL) {
        for (uint32_t i = 0; i < freer->marks_used; i++)
            streams_adopt_event(freer->key.context, freer->marks[i].event, false);
        free(freer);
    }
}

/* ---- events -----------------------------------------------------------------------------------
 */

/* By the thread that uses the stream, which may have to wait where its queue is full. Where the
 * stream is idle all is over, and needs no event. What is of no use goes to others. */
static void mark(struct freed *freed, void *stream) {
    const uint64_t context = freed->key.context;
    if (work_stream_is_idle(stream)) {
        freed->idle = freed->last;
        return;
    }
    void *event = work_mark(context, stream, freed->key.stream == 0);
    if (event != NULL) event = pooled_marked(freed, event, freed->last);
    if (event != NULL) streams_adopt_event(context, event, false);
}

/* ---- looking ----------------------------------------------------------------------------------
 */

/* All that was freed there so far is over. */
static bool is_over(struct stream_key key) {
    const struct driver *cuda = driver_get();
    if (key.stream < POOLED_FIRST_THREAD) return work_of_stream_is_over(key.context, key.stream);
    if (key.stream != thread_number() || key.context != contexts_current_generation() ||
        streams_is_capturing(DRIVER_STREAM_PER_THREAD))
        return false;
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    const bool over = cuda->stream_query(DRIVER_STREAM_PER_THREAD) == CUDA_SUCCESS;
    driver_relaxed_end(cuda, mode);
    return over;
}

/* The latest free whose event is done. */
static uint64_t look_at_marks(const struct freed *freed) {
    const uint64_t context = freed->key.context;
    uint64_t point = 0;
    for (uint32_t i = 0; i < freed->marks_used; i++) {
        const struct freed_mark *mark = &freed->marks[i];
        if (!streams_event_is_done(context, mark->event)) break;
        point = mark->point;
        void *spare = pooled_mark_done(freed, mark->event);
        if (spare != NULL) streams_adopt_event(context, spare, false);
    }
    return point;
}

static bool look_at(const struct freed *freed) {
    uint64_t point = freed->last;
    if (freed->idle < point && !is_over(freed->key)) {
        point = look_at_marks(freed);
        if (freed->idle > point) point = freed->idle;
    }
    if (point == 0) return false;
    pooled_over(freed->key, point);
    return true;
}

/* Whether any are over. */
static bool look_at_all(struct pool *pool, const struct stream_key *but) {
    struct freed list[LISTED_AT_ONCE];
    size_t listed = LISTED_AT_ONCE;
    bool any = false;
    for (size_t skipped = 0; listed == LISTED_AT_ONCE; skipped += listed) {
        listed = pooled_list_freed(pool, skipped, list, LISTED_AT_ONCE);
        for (size_t i = 0; i < listed; i++) {
            if (but == NULL || !is_same(list[i].key, *but)) any = look_at(&list[i]) || any;
            pooled_unuse(&list[i]);
        }
    }
    tidy(pool);
    return any;
}

void pool_frees_look(struct pool *pool, const struct stream_key *but) {
    if ((but == NULL || pool->takes_what_is_over) && pooled_has_freed(pool, but))
        look_at_all(pool, but);
}

/* ---- what others have yet to free -------------------------------------------------------------
 */

/* The stream waits for what it lacks, in its own order: for the first event behind that. */
static bool follow(struct pool *pool, const struct freed *freed, struct stream_key key,
                   void *stream) {
    uint32_t i = 0;
    if (freed->wanted <= freed->idle) return pooled_follow(pool, freed, freed->idle, key);
    while (i < freed->marks_used && freed->marks[i].point < freed->wanted)
        i++;
    return i < freed->marks_used &&
           work_follow(freed->key.context, freed->marks[i].event, stream) &&
           pooled_follow(pool, freed, freed->marks[i].point, key);
}

static bool is_enough(const struct pool *pool, uint64_t missing) {
    return missing != UINT64_MAX && pool_frees_fits(pool->device, missing);
}

/* All that is freed there, behind what is in the stream now. */
static void mark_last(struct pool *pool, struct stream_key key, void *stream) {
    struct freed list[LISTED_AT_ONCE];
    size_t listed = LISTED_AT_ONCE;
    for (size_t skipped = 0; listed == LISTED_AT_ONCE; skipped += listed) {
        listed = pooled_list_freed(pool, skipped, list, LISTED_AT_ONCE);
        for (size_t i = 0; i < listed; i++) {
            if (is_same(list[i].key, key)) mark(&list[i], stream);
            pooled_unuse(&list[i]);
        }
    }
}

/* One after the other, and only those whose parts it lacks: who waits for less is sooner done, and
 * waits for nobody in vain. */
bool pool_frees_follow(struct pool *pool, uint64_t bytes, bool refused, struct stream_key key,
                       struct pooling_stream stream) {
    struct freed freed;
    bool follows = pool->follows && pooled_has_freed(pool, &key), any = false;
    if (!follows) return false;
    const bool over = look_at_all(pool, &key);
    while (follows) {
        const uint64_t missing = pooled_missing(pool, bytes, key);
        if (missing == 0 || (!refused && is_enough(pool, missing))) break;
        follows = pooled_lacking(pool, bytes, key, &freed) < missing && freed.freer != NULL &&
                  follow(pool, &freed, key, gate_stream(stream.handle, stream.variant));
        if (freed.freer != NULL) pooled_unuse(&freed);
        any = any || follows;
    }
    if (any)
        mark_last(pool, key,
                  gate_stream(stream.handle, stream.variant)); /* others may follow this one */
    tidy(pool);
    return any || over;
}

/* ---- giving back ------------------------------------------------------------------------------
 */

/* A segment that the driver does not give back stays, and nobody has its addresses. */
bool pool_frees_release(struct pool *pool, uint64_t keep_bytes) {
    struct extent *extent;
    struct segment *segment;
    bool any = false;
    while (!ending_has_begun() && (segment = pooled_vacate(pool, keep_bytes, &extent)) != NULL) {
        if (!chunks_claim_for_free(&segment->chunk) || ending_has_begun()) return any;
        making_drop_chunk(&segment->chunk);
        if (segment->chunk.handle != 0) continue;
        pooled_vacated(segment, extent);
        any = true;
    }
    if (!any) return false;
    memory_tell(pool->device);
    mover_freed();
    return true;
}

static bool release_all(int device, bool all) {
    struct pool *pool;
    bool any = false;
    FOR_EACH_POOL(pool) {
        if (device >= 0 && pool->device != device) continue;
        any = pool_frees_release(pool, all ? 0 : pooled_keeps(pool)) || any;
    }
    return any;
}

bool pool_frees_fits(int device, uint64_t bytes) {
    uint64_t cap_bytes;
    const uint64_t own_bytes = registry_bytes_allocated(device),
                   used_bytes = memory_used_by_tenant(device, &cap_bytes),
                   usable_bytes = residency_usable(device);
    return (usable_bytes == RESIDENCY_UNLIMITED || own_bytes + bytes <= usable_bytes) &&
           (cap_bytes == 0 || used_bytes + bytes <= cap_bytes);
}

/* A stream that has just freed is busy for a moment with its mark. */
bool pooling_give_up(int device) {
    struct pool *pool;
    bool any = false;
    if (device < 0) return false;
    for (int looks = 0; looks < LOOKS_MAX && pooled_kept_bytes(device) > 0; looks++) {
        if (looks > 0) clock_sleep_ns(LOOK_PAUSE_NS);
        FOR_EACH_POOL(pool)
        if (pool->device == device) look_at_all(pool, NULL);
        any = release_all(device, true) || any;
    }
    return any;
}

void pooling_make_room(int device, uint64_t bytes) {
    if (device < 0 || pooled_kept_bytes(device) == 0) return;
    if (!pool_frees_fits(device, bytes)) pooling_give_up(device);
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

static bool has_context(void) {
    return memory_current_device() >= 0;
}

bool pooling_free_later(uint64_t address, struct pooling_stream stream, int *cu_result) {
    struct stream_key key;
    struct pool *pool;
    struct freed freed;
    int device;
    void *handle = gate_stream(stream.handle, stream.variant);
    if (!pooled_cover(address) || streams_is_capturing(handle)) return false;
    if (!key_of(handle, streams_number, &key, &device) || !pooled_free(address, key, &pool, &freed))
        return false;
    if (freed.freer != NULL) {
        mark(&freed, handle);
        pooled_unuse(&freed);
        pool_frees_drop(pool);
    }
    *cu_result = CUDA_SUCCESS;
    return true;
}

CUresult pooling_free_closed(const struct allocated *closed) {
    const CUresult result = chunks_all_here() ? work_wait(closed->generation) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) pooled_free_closed(closed);
    return result;
}

bool pooling_close(uint64_t address, struct allocated *closed) {
    if (!has_context() || !pooled_close(address, closed)) return false;
    closed->generation = contexts_current_generation();
    return true;
}

/* ---- what somebody has waited for -------------------------------------------------------------
 */

uint64_t pooling_waits(void) {
    return pooled_are_there() ? pooled_latest_free() : 0;
}

static bool waits_for_legacy(struct stream_key key) {
    return key.stream >= POOLED_FIRST_THREAD || streams_is_blocking(key.stream);
}

/* A context's legacy stream may have waited for its blocking ones: they are asked. */
static void look_at_blocking(struct pool *pool, uint64_t context) {
    struct freed list[LISTED_AT_ONCE];
    size_t listed = LISTED_AT_ONCE;
    for (size_t skipped = 0; listed == LISTED_AT_ONCE; skipped += listed) {
        listed = pooled_list_freed(pool, skipped, list, LISTED_AT_ONCE);
        for (size_t i = 0; i < listed; i++) {
            if (list[i].key.context == context && waits_for_legacy(list[i].key)) look_at(&list[i]);
            pooled_unuse(&list[i]);
        }
    }
}

static void release_kept(void) {
    struct pool *pool;
    FOR_EACH_POOL(pool) tidy(pool);
    release_all(-1, false);
}

void pooling_stream_waited(struct pooling_stream stream, uint64_t freed_before) {
    struct stream_key key;
    struct pool *pool;
    int device;
    if (freed_before == 0 || !pooled_are_there() ||
        !key_of(gate_stream(stream.handle, stream.variant), streams_known_number, &key, &device))
        return;
    pooled_over(key, freed_before);
    if (key.stream == 0) FOR_EACH_POOL(pool) look_at_blocking(pool, key.context);
    release_kept();
}

void pooling_context_waited(void *context, uint64_t freed_before) {
    if (freed_before == 0 || !pooled_are_there()) return;
    const uint64_t generation =
        context != NULL ? contexts_generation(context) : contexts_current_generation();
    if (generation == 0) return;
    pooled_over((struct stream_key){generation, ALL_STREAMS}, freed_before);
    backing_catch_up();
    release_kept();
}

void pooling_event_waited(void) {
    struct pool *pool;
    if (!pooled_are_there()) return;
    FOR_EACH_POOL(pool)
    if (pooled_has_freed(pool, NULL)) look_at_all(pool, NULL);
    release_all(-1, false);
}

/* Nobody can ask about it any more: events say when its work is over, or the end of its context's
 * work. */
void pooling_stream_leaves(void *stream) {
    struct stream_key key;
    struct pool *pool;
    int device;
    if (!pooled_are_there() || !streams_is_created(stream) || streams_is_capturing(stream) ||
        !key_of(stream, streams_number, &key, &device))
        return;
    if (is_over(key)) pooled_over(key, UINT64_MAX);
    FOR_EACH_POOL(pool) {
        mark_last(pool, key, stream);
        tidy(pool);
    }
}
