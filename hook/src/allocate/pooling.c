#include "allocate/pooling.h"

#include <stdlib.h>

#include "allocate/making.h"
#include "allocate/memory.h"
#include "allocate/pool_frees.h"
#include "base/driver.h"
#include "base/ending.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "device/streams.h"
#include "memory/device_memory.h"
#include "memory/pooled.h"
#include "swap/residency.h"

/* No device has so much. */
#define BYTES_BEYOND_ALL ((uint64_t)1 << 46)
/* Others may take what was found meanwhile. */
#define TRIES_MAX 8
#define AGAIN CUDA_ERROR_NOT_READY
/* Memory of a pool that is made for these uses is made for them by us, too. */
#define KNOWN_USAGE CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* ---- which pools are ours ---------------------------------------------------------------------
 */

/* The pool of each device from which its streams allocate; NULL: the driver is to be asked. */
static _Atomic(void *) current_pools[REGISTRY_DEVICES_MAX];

static _Atomic uint32_t current_changes;

void pooling_current_changed(void) {
    atomic_fetch_add(&current_changes, 1);
    for (int i = 0; i < REGISTRY_DEVICES_MAX; i++)
        atomic_store(&current_pools[i], NULL);
}

/* What the driver said before it was told of another one is forgotten at once. */
static void *current_pool(int device) {
    void *pool = atomic_load(&current_pools[device]);
    if (pool != NULL) return pool;
    const uint32_t changes = atomic_load(&current_changes);
    pool = memory_pool_of(device);
    atomic_store(&current_pools[device], pool);
    if (atomic_load(&current_changes) != changes) atomic_store(&current_pools[device], NULL);
    return pool;
}

static struct pool *add(void *handle, int device, uint64_t bytes_max, uint16_t usage) {
    const struct driver *cuda = driver_get();
    cuuint64_t threshold = 0;
    int takes = 1, follows = 1;
    if (!driver_can_move(cuda)) return NULL;
    cuda->pool_attribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    cuda->pool_attribute(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &takes);
    cuda->pool_attribute(handle, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &follows);
    struct pool pool = {
        .handle = handle,
        .device = device,
        .bytes_max = round_up(bytes_max, SPACE_SLOT_BYTES),
        .usage = usage,
        .threshold = threshold,
        .takes_what_is_over = takes != 0,
        .follows = follows != 0,
    };
    pool.access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return pooled_add(&pool);
}

/* Nobody has told us of the pools that devices have from the start. */
static struct pool *hold_default(void *handle) {
    const struct driver *cuda = driver_get();
    CUmemoryPool pool = NULL;
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        if (cuda->device_default_pool(&pool, device) != CUDA_SUCCESS) return NULL;
        if (pool == handle) return add(handle, device, 0, 0);
    }
    return NULL;
}

static struct pool *hold(void *handle) {
    struct pool *pool = pooled_hold(handle);
    if (pool != NULL || handle == NULL || !driver_can_move(driver_get())) return pool;
    return hold_default(handle);
}

void pooling_created(void *pool, const CUmemPoolProps *properties) {
    const bool is_plain =
        properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
        properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
        properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties->location.id >= 0 &&
        properties->location.id < REGISTRY_DEVICES_MAX && (properties->usage & ~KNOWN_USAGE) == 0;
    struct pool *added = NULL;
    if (is_plain)
        added = add(pool, properties->location.id, properties->maxSize, properties->usage);
    if (added != NULL) pool_frees_drop(added);
}

struct pool *pooling_leaves(void *pool) {
    return pooled_leaves(pool);
}

void pooling_left(struct pool *leaving, void *pool, int cu_result) {
    pooling_current_changed();
    if (leaving == NULL) return;
    if (cu_result != CUDA_SUCCESS)
        pooled_stays(leaving, pool);
    else
        pool_frees_release(leaving, 0);
    pool_frees_drop(leaving);
}

/* ---- making segments --------------------------------------------------------------------------
 */

struct request {
    struct pool *pool;
    uint64_t bytes, missing;
    struct pooling_stream stream;
    struct stream_key key;
    const char *call_name;
    uint64_t address;
};

/* What is made for a run. */
struct made {
    struct segment **segments;
    size_t count;
};

static CUresult make_segment(struct pool *pool, uint64_t address, uint64_t bytes,
                             struct made *made) {
    struct segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) return MAKING_NO_HOST_MEMORY;
    segment->pool = pool;
    segment->mapping = (struct mapping){
        .address = address,
        .bytes = bytes,
        .chunk = &segment->chunk,
        .segment = segment,
        .access = pool->access,
    };
    segment->chunk = (struct chunk){.mappings = &segment->mapping,
                                    .bytes = bytes,
                                    .device = pool->device,
                                    .usage = pool->usage};
    made->segments[made->count++] = segment;
    return device_memory_put(&segment->chunk);
}

static CUresult fill(struct pool *pool, uint64_t address, uint64_t bytes, struct made *made) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0, part; done < bytes && result == CUDA_SUCCESS; done += part) {
        part = bytes - done < CHUNK_BYTES_MAX ? bytes - done : CHUNK_BYTES_MAX;
        result = make_segment(pool, address + done, part, made);
    }
    return result == CUDA_SUCCESS ? device_memory_give_these(address, bytes, pool->access) : result;
}

static CUresult fill_run(struct pool *pool, const struct run *run, struct made *made) {
    const struct extent *extent = run->first;
    CUresult result = CUDA_SUCCESS;
    made->segments = calloc(run->bytes_missing / SPACE_SLOT_BYTES + 1, sizeof *made->segments);
    if (made->segments == NULL) return MAKING_NO_HOST_MEMORY;
    for (bool more = true; more && result == CUDA_SUCCESS; extent = TAILQ_NEXT(extent, next)) {
        more = extent != run->last;
        if (extent->was == EXTENT_EMPTY) result = fill(pool, extent->address, extent->bytes, made);
    }
    return result;
}

/* False: the driver has not given some of it back, so its addresses are nobody's any more. */
static bool drop_made(const struct made *made) {
    bool all = true;
    for (size_t i = 0; i < made->count; i++) {
        making_drop_chunk(&made->segments[i]->chunk);
        if (made->segments[i]->chunk.handle == 0)
            free(made->segments[i]);
        else
            all = false;
    }
    return all;
}

/* Inside the gate, where something is missing. */
static CUresult make(void *argument) {
    struct request *request = argument;
    struct pool *pool = request->pool;
    struct made made = {0};
    struct run run;
    if (!pooled_claim(pool, request->bytes, request->key, &run)) return AGAIN;
    const uint32_t changes = pooled_access_changes(pool);
    CUresult result = AGAIN;
    if (run.bytes_missing <= request->missing) result = fill_run(pool, &run, &made);
    if (result == CUDA_SUCCESS) {
        request->address =
            pooled_settle(pool, &run, made.segments, made.count, request->bytes, request->missing);
        if (request->address == 0)
            result = pooled_run_is_lost(pool, &run) ? AGAIN : MAKING_NO_HOST_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        if (drop_made(&made))
            pooled_unclaim(pool, &run);
        else
            pooled_forfeit(pool, &run);
    }
    /* Somebody who was given access meanwhile did not find them. */
    for (size_t i = 0; result == CUDA_SUCCESS && i < made.count; i++)
        if (pooled_access_changes(pool) != changes)
            device_memory_give_accesses(&made.segments[i]->chunk);
    free(made.segments);
    return result;
}

/* ---- allocating -------------------------------------------------------------------------------
 */

static CUresult grow(struct request *request) {
    if (request->missing == UINT64_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    if (request->missing == 0) return make(request);
    const struct making making = {
        .call_name = request->call_name,
        .device = request->pool->device,
        .bytes = request->missing,
        .make = make,
        .argument = request,
    };
    return making_run(&making);
}

static bool take(struct request *request) {
    request->address = pooled_take(request->pool, request->bytes, request->key);
    return request->address != 0;
}

static bool follow(struct request *request, bool refused) {
    return pool_frees_follow(request->pool, request->bytes, refused, request->key, request->stream);
}

/* Where the pool or its device is full, what others have yet to free does as well: once. */
static CUresult take_or_grow(struct request *request, bool *followed) {
    struct pool *pool = request->pool;
    if (take(request)) return CUDA_SUCCESS;
    request->missing = pooled_missing(pool, request->bytes, request->key);
    const bool fits =
        request->missing != UINT64_MAX && pool_frees_fits(pool->device, request->missing);
    if (fits || *followed) return grow(request);
    *followed = true;
    return follow(request, false) ? AGAIN : grow(request);
}

static CUresult allocate(struct request *request) {
    CUresult result = AGAIN;
    bool followed = false;
    if (take(request)) return CUDA_SUCCESS;
    pool_frees_look(request->pool, &request->key);
    for (int tries = 0; result == AGAIN && tries < TRIES_MAX; tries++) {
        result = take_or_grow(request, &followed);
        if (result != CUDA_ERROR_OUT_OF_MEMORY || followed) continue;
        followed = true;
        if (follow(request, true)) result = AGAIN;
    }
    return result == AGAIN ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Twice what the device has, so that what is allocated for long leaves room for the rest. */
static bool has_addresses(struct pool *pool) {
    const struct driver *cuda = driver_get();
    size_t total_bytes = 0;
    CUdeviceptr address = 0;
    if (pooled_is_open(pool)) return true;
    if (cuda->device_total_bytes(&total_bytes, pool->device) != CUDA_SUCCESS) return false;
    const uint64_t bytes = round_up(2 * (uint64_t)total_bytes, SPACE_SLOT_BYTES);
    if (cuda->address_reserve(&address, bytes, SPACE_SLOT_BYTES, 0, 0) != CUDA_SUCCESS)
        return false;
    if (!pooled_open(pool, address, bytes)) cuda->address_free(address, bytes);
    return pooled_is_open(pool);
}

static struct pool *serving(void *handle, int device) {
    struct pool *pool = hold(handle != NULL ? handle : current_pool(device));
    if (pool == NULL || has_addresses(pool)) return pool;
    pool_frees_drop(pool);
    return NULL;
}

/* This thread's pool. A handler of SIGINT may leave any wait of its call by a jump, and never come
 * back to end it: the thread's next call does. */
static _Thread_local struct pool *mine __attribute__((tls_model("initial-exec")));

static void drop_mine(void) {
    if (mine != NULL && pooled_is_there(mine)) pool_frees_drop(mine);
    mine = NULL;
}

bool pooling_allocate(uint64_t *address, uint64_t bytes, void *pool, struct pooling_stream stream,
                      const char *call_name, int *cu_result) {
    struct request request = {.bytes = bytes, .stream = stream, .call_name = call_name};
    int device;
    if (address == NULL || bytes == 0 || bytes >= BYTES_BEYOND_ALL || !residency_swaps() ||
        failure_in_current_context() || !pool_frees_key(stream, &request.key, &device))
        return false;
    drop_mine();
    request.pool = mine = serving(pool, device);
    if (request.pool == NULL) return false;
    *cu_result = (int)allocate(&request);
    drop_mine();
    if (*cu_result == CUDA_SUCCESS) *address = request.address;
    return true;
}

bool pooling_fix(uint64_t address) {
    struct allocated found;
    bool is_news;
    if (!pooled_find(address, &found) || !pooled_fix(address, &is_news)) return false;
    if (is_news) memory_tell(found.device);
    return true;
}

/* ---- what programs ask and say of pools -------------------------------------------------------
 */

void pooling_attribute(void *pool, CUmemPool_attribute attribute, void *value) {
    struct pool *ours = pooled_hold(pool);
    if (ours == NULL) return;
    const struct pooled_numbers numbers = pooled_numbers(ours);
    switch ((int)attribute) {
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
            *(cuuint64_t *)value += numbers.reserved;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            *(cuuint64_t *)value += numbers.most_reserved;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            *(cuuint64_t *)value += numbers.used;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            *(cuuint64_t *)value += numbers.most_used;
            break;
    }
    pool_frees_drop(ours);
}

void pooling_set_attribute(void *pool, CUmemPool_attribute attribute, const void *value) {
    struct pool *ours = pooled_hold(pool); /* another one says so when it becomes ours */
    if (ours == NULL) return;
    switch ((int)attribute) {
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            pooled_set_threshold(ours, *(const cuuint64_t *)value);
            break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            pooled_set_reuse(&ours->takes_what_is_over, *(const int *)value != 0);
            break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            pooled_set_reuse(&ours->follows, *(const int *)value != 0);
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            pooled_reset_marks(ours, true, false);
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            pooled_reset_marks(ours, false, true);
            break;
    }
    pool_frees_drop(ours);
}

void pooling_trim(void *pool, uint64_t keep_bytes) {
    struct pool *ours = pooled_hold(pool);
    if (ours == NULL) return;
    pool_frees_look(ours, NULL);
    pool_frees_release(ours, keep_bytes);
    pool_frees_drop(ours);
}

#define LISTED_AT_ONCE 64

void pooling_set_access(void *pool, const CUmemAccessDesc *accesses, size_t count) {
    struct block_range ranges[LISTED_AT_ONCE];
    struct pool *ours = hold(pool);
    if (ours == NULL) return;
    for (size_t i = 0; i < count; i++)
        if (accesses[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            pooled_set_access(ours, accesses[i].location.id, (uint8_t)accesses[i].flags);
    size_t listed = LISTED_AT_ONCE;
    for (uint64_t at = 0; listed == LISTED_AT_ONCE;) {
        listed = pooled_list_mapped(ours, at, ranges, LISTED_AT_ONCE);
        for (size_t i = 0; i < listed; i++) {
            driver_get()->memory_set_access(ranges[i].address, ranges[i].bytes, accesses, count);
            at = ranges[i].address + ranges[i].bytes;
        }
    }
    pool_frees_drop(ours);
}

/* ---- freeing at once --------------------------------------------------------------------------
 */

bool pooling_free(uint64_t address, int *cu_result) {
    struct allocated closed;
    if (!pooling_close(address, &closed)) return false;
    CUresult result = CUDA_SUCCESS;
    if (streams_capture_anywhere())
        result = CUDA_ERROR_NOT_READY;
    else if (!ending_has_begun())
        result = pooling_free_closed(&closed);
    if (result == CUDA_ERROR_NOT_READY) { /* a capture goes on, or has begun */
        blocks_put_off(&closed);
        result = CUDA_SUCCESS;
    } else if (result != CUDA_SUCCESS) {
        pooled_reopen(&closed); /* it stays allocated, as with the driver */
    }
    *cu_result = (int)result;
    return true;
}
