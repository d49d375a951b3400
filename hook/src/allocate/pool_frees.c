#include "allocate/pool_frees.h"

#include <stdlib.h>

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
#define CONTEXTS_MAX 64
#define FOLLOWS_NS ((uint64_t)2000000000)
#define FOLLOW_LOOK_NS 100000u

/* ---- names of streams -------------------------------------------------------------------------
 */

/* Numbers of created streams are smaller. Each thread has a default stream of its own. */
#define FIRST_THREAD ((uint64_t)1 << 62)

static uint64_t thread_number(void) {
    static _Atomic uint64_t last = FIRST_THREAD;
    static _Thread_local uint64_t number __attribute__((tls_model("initial-exec")));
    if (number == 0) number = atomic_fetch_add(&last, 1) + 1;
    return number;
}

static void *handle_of(struct pooling_stream stream) {
    const bool per_thread = stream.handle == NULL && stream.variant == GATE_STREAM_PER_THREAD;
    return per_thread ? DRIVER_STREAM_PER_THREAD : stream.handle;
}

static bool key_of(void *stream, struct stream_key *key, int *device) {
    if (!streams_is_created(stream)) {
        key->context = contexts_current_generation();
        key->stream = stream == DRIVER_STREAM_PER_THREAD ? thread_number() : 0;
        *device = memory_current_device();
        return key->context != 0 && *device >= 0 && *device < REGISTRY_DEVICES_MAX;
    }
    void *handle = NULL;
    key->stream = streams_number(stream, &handle);
    if (key->stream == 0) return false;
    const struct context context = contexts_copy(handle);
    key->context = context.generation;
    *device = context.ordinal;
    return context.generation != 0 && context.failed_result == 0 && *device < REGISTRY_DEVICES_MAX;
}

bool pool_frees_key(struct pooling_stream stream, struct stream_key *key, int *device) {
    void *handle = handle_of(stream);
    if (streams_capture_anywhere()) {
        const bool is_legacy = handle == NULL || handle == DRIVER_STREAM_LEGACY;
        if (is_legacy || streams_is_capturing(handle)) return false;
    }
    return key_of(handle, key, device);
}

/* ---- looking ----------------------------------------------------------------------------------
 */

static bool is_same(struct stream_key left, struct stream_key right) {
    return left.context == right.context && left.stream == right.stream;
}

/* All that was freed there so far is over. */
static bool is_over(struct stream_key key) {
    if (key.stream >= FIRST_THREAD)
        return key.stream == thread_number() && key.context == contexts_current_generation() &&
               driver_get()->stream_query(DRIVER_STREAM_PER_THREAD) == CUDA_SUCCESS;
    return work_of_stream_is_over(key.context, key.stream);
}

static void end_event(struct pool *pool, const struct freed *freed) {
    if (pooled_take_event(pool, freed->key, freed->event))
        streams_adopt_event(freed->key.context, freed->event, false);
}

static bool look_at(struct pool *pool, const struct freed *freed) {
    uint64_t point = 0;
    if (is_over(freed->key)) point = freed->last;
    if (point == 0 && freed->event != NULL &&
        streams_event_is_done(freed->key.context, freed->event))
        point = freed->event_point;
    if (point == 0) return false;
    if (freed->event != NULL) end_event(pool, freed);
    pooled_over(freed->key, point);
    return true;
}

/* Whether any are over. */
static bool look_at_all(struct pool *pool, struct stream_key but) {
    struct freed list[LISTED_AT_ONCE];
    size_t listed = LISTED_AT_ONCE;
    bool any = false;
    for (size_t skipped = 0; listed == LISTED_AT_ONCE;) {
        listed = pooled_list_freed(pool, skipped, list, LISTED_AT_ONCE);
        size_t over = 0;
        for (size_t i = 0; i < listed; i++)
            if (!is_same(list[i].key, but) && look_at(pool, &list[i])) over++;
        skipped += listed - over;
        any = any || over > 0;
    }
    return any;
}

void pool_frees_look(struct pool *pool, struct stream_key but) {
    if (pooled_may_look(pool, but)) look_at_all(pool, but);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

/* The work of all contexts that may use memory of the device. Where memory is parked, nothing was
 * launched since the last drain. */
static CUresult wait_for_work(void) {
    void *handles[CONTEXTS_MAX];
    CUresult result = CUDA_SUCCESS;
    if (!chunks_all_here()) return CUDA_SUCCESS;
    const uint32_t count = contexts_list(false, handles, CONTEXTS_MAX);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const uint64_t generation = contexts_generation(handles[i]);
        if (generation != 0) result = work_wait(generation);
    }
    return result;
}

/* ---- what others have yet to free -------------------------------------------------------------
 */

/* The event is nobody else's meanwhile. */
static bool follow(struct pool *pool, const struct freed *freed, struct stream_key key,
                   void *stream) {
    if (freed->event == NULL || !pooled_take_event(pool, freed->key, freed->event)) return false;
    const CUresult result = driver_get()->stream_wait_event(stream, freed->event, 0);
    streams_adopt_event(freed->key.context, freed->event, false);
    if (result == CUDA_SUCCESS) pooled_follow(pool, freed->key, freed->event_point, key);
    return result == CUDA_SUCCESS;
}

static bool follow_all(struct pool *pool, struct stream_key key, void *stream) {
    struct freed list[LISTED_AT_ONCE];
    bool any = false;
    const size_t listed = pooled_list_freed(pool, 0, list, LISTED_AT_ONCE);
    for (size_t i = 0; i < listed; i++)
        if (!is_same(list[i].key, key)) any = follow(pool, &list[i], key, stream) || any;
    return any;
}

bool pool_frees_follow(struct pool *pool, struct stream_key key, struct pooling_stream stream) {
    const uint64_t until_ns = clock_now_ns() + FOLLOWS_NS;
    const bool follows = pool->follows;
    if (!pooled_may_look(pool, key) || !follows) return false;
    if (follow_all(pool, key, handle_of(stream))) return true;
    while (!look_at_all(pool, key)) {
        if (clock_now_ns() >= until_ns) return false;
        clock_sleep_ns(FOLLOW_LOOK_NS);
    }
    return true;
}

/* ---- giving back ------------------------------------------------------------------------------
 */

bool pool_frees_release(struct pool *pool, uint64_t keep_bytes) {
    struct extent *extent;
    struct segment *segment;
    bool any = false;
    while (!ending_has_begun() && (segment = pooled_vacate(pool, keep_bytes, &extent)) != NULL) {
        if (!chunks_claim_for_free(&segment->chunk) || ending_has_begun()) return any;
        making_drop_chunk(&segment->chunk);
        pooled_vacated(segment, extent);
        any = true;
    }
    if (!any) return false;
    memory_tell(pool->device);
    mover_freed();
    return true;
}

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

static void release_all(int device, bool all) {
    struct pool *pool;
    FOR_EACH_POOL(pool)
    if (device < 0 || pool->device == device)
        pool_frees_release(pool, all ? 0 : pooled_keeps(pool));
}

bool pool_frees_fits(int device, uint64_t bytes) {
    uint64_t cap_bytes;
    const uint64_t own_bytes = registry_sums_of(device).bytes_allocated,
                   used_bytes = memory_used_by_tenant(device, &cap_bytes),
                   usable_bytes = residency_usable(device);
    return (usable_bytes == RESIDENCY_UNLIMITED || own_bytes + bytes <= usable_bytes) &&
           (cap_bytes == 0 || used_bytes + bytes <= cap_bytes);
}

void pooling_make_room(int device, uint64_t bytes) {
    if (device >= 0 && pooled_kept_bytes(device) > 0 && !pool_frees_fits(device, bytes))
        release_all(device, true);
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

static bool has_context(void) {
    return memory_current_device() >= 0;
}

/* An event behind what is in the stream, in the current context; NULL: that cannot be. */
static void *record(struct stream_key key, void *stream) {
    const struct driver *cuda = driver_get();
    if (streams_capture_anywhere() || key.context != contexts_current_generation()) return NULL;
    CUevent event = streams_spare_event(key.context);
    if (event == NULL && cuda->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (cuda->event_record(event, stream) == CUDA_SUCCESS) return event;
    streams_adopt_event(key.context, event, false);
    return NULL;
}

/* An event behind the frees, where another stream has lacked what was freed in this one: made by
 * the thread that frees, in whose stream it may wait for room. */
static void mark(uint64_t address, struct stream_key key, void *stream) {
    struct pool *pool = pooled_wants_event(address, key);
    if (pool == NULL) return;
    const uint64_t point = pooled_latest_free();
    void *event = record(key, stream);
    if (event != NULL) event = pooled_swap_event(pool, key, event, point);
    if (event != NULL) streams_adopt_event(key.context, event, false);
    pool_frees_drop(pool);
}

bool pooling_free_later(uint64_t address, struct pooling_stream stream, int *cu_result) {
    struct stream_key key;
    int device;
    if (!pooled_cover(address) || !has_context()) return false;
    if (!pool_frees_key(stream, &key, &device)) {
        /* Beside a capture the legacy stream is known all the same. */
        const bool captures = streams_is_capturing(handle_of(stream));
        if (captures || !key_of(handle_of(stream), &key, &device)) return false;
    }
    if (!pooled_free(address, &key)) return false;
    mark(address, key, handle_of(stream));
    *cu_result = CUDA_SUCCESS;
    return true;
}

bool pooling_free(uint64_t address, int *cu_result) {
    struct allocated closed;
    if (!has_context()) return false;
    *cu_result = CUDA_SUCCESS;
    if (streams_capture_anywhere()) return pooled_free(address, NULL);
    if (!pooled_close(address, &closed)) return false;
    const CUresult result = ending_has_begun() ? CUDA_SUCCESS : wait_for_work();
    if (result == CUDA_SUCCESS) {
        pooled_free_closed(&closed);
    } else {
        pooled_reopen(&closed);
        if (result == CUDA_ERROR_NOT_READY) return pooled_free(address, NULL);
        *cu_result = (int)result;
    }
    return true;
}

/* ---- what somebody has waited for -------------------------------------------------------------
 */

uint64_t pooling_waits(void) {
    return pooled_are_there() ? pooled_latest_free() : 0;
}

/* A context's legacy stream waits for its blocking ones. */
static void blocking_waited(struct pool *pool, uint64_t context, uint64_t point) {
    struct freed list[LISTED_AT_ONCE];
    size_t listed = LISTED_AT_ONCE;
    for (size_t skipped = 0; listed == LISTED_AT_ONCE; skipped += listed) {
        listed = pooled_list_freed(pool, skipped, list, LISTED_AT_ONCE);
        for (size_t i = 0; i < listed; i++)
            if (list[i].key.context == context && streams_is_blocking(list[i].key.stream))
                pooled_over(list[i].key, point);
    }
}

void pooling_stream_waited(struct pooling_stream stream, uint64_t freed_before) {
    struct stream_key key;
    int device;
    if (freed_before == 0 || !pooled_are_there() || !key_of(handle_of(stream), &key, &device))
        return;
    pooled_over(key, freed_before);
    struct pool *pool;
    if (key.stream == 0) FOR_EACH_POOL(pool) blocking_waited(pool, key.context, freed_before);
    release_all(-1, false);
}

void pooling_context_waited(uint64_t freed_before) {
    if (freed_before == 0 || !pooled_are_there()) return;
    const uint64_t generation = contexts_current_generation();
    pooled_over((struct stream_key){generation, ALL_STREAMS}, freed_before);
    struct pool *pool;
    if (atomic_load(&contexts_open) == 1)
        FOR_EACH_POOL(pool) pooled_unknown_over(pool, freed_before);
    release_all(-1, false);
}

void pooling_event_waited(void) {
    struct pool *pool;
    if (!pooled_are_there()) return;
    FOR_EACH_POOL(pool)
    if (pooled_has_freed(pool)) look_at_all(pool, (struct stream_key){0});
    release_all(-1, false);
}

/* Nobody can ask about it any more: an event says when its work is over, or the end of its
 * context's work. */
void pooling_stream_leaves(void *stream) {
    struct stream_key key;
    int device;
    if (!pooled_are_there() || !streams_is_created(stream) || streams_is_capturing(stream) ||
        !key_of(stream, &key, &device))
        return;
    if (is_over(key)) {
        pooled_over(key, UINT64_MAX);
        return;
    }
    struct pool *pool;
    FOR_EACH_POOL(pool) {
        const uint64_t point = pooled_latest_free();
        void *event = pooled_has_freed_in(pool, key) ? record(key, stream) : NULL;
        if (event != NULL) event = pooled_swap_event(pool, key, event, point);
        if (event != NULL) streams_adopt_event(key.context, event, false);
    }
}
