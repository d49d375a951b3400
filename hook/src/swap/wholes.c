#include "swap/wholes.h"

#include "base/bell.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/log.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "memory/device_memory.h"
#include "swap/copy_pipeline.h"
#include "swap/host_arena.h"
#include "swap/mover_steps.h"
#include "swap/residency.h"

#define FLIGHTS 4
#define POLL_NS 50000u

/* ---- for whoever waits ------------------------------------------------------------------------
 */

static bool is_answered(void *argument) {
    return ending_has_begun() || physical_whole(*(const uint64_t *)argument, false) != WHOLE_WANTED;
}

enum physical_whole wholes_make(uint64_t number, const char *call_name) {
    if (!mover_can_run() || residency_why_it_stays() != NULL || ending_has_begun())
        return WHOLE_STAYS;
    const enum physical_whole now = physical_whole(number, true);
    if (now != WHOLE_WANTED) return now;
    const struct wait_condition condition = {
        .holds = is_answered,
        .argument = &number,
        .until_ns = UINT64_MAX,
        .wants_turn = true,
    };
    if (wait_for(&condition, call_name)) return physical_whole(number, false);
    physical_whole_refuse(number, WHOLE_NOT_ASKED);
    bell_ring(NEWS_MEMORY_MOVED); /* a restore that has waited for it may be at its end */
    return WHOLE_WANTED;
}

void wholes_refuse(void) {
    if (physical_whole_refuse(0, WHOLE_BUSY)) wait_wake_all();
}

/* ---- copies -----------------------------------------------------------------------------------
 */

static struct chunk *chunk_of(struct physical *physical, size_t part) {
    return &physical->parts[part].chunk;
}

/* The end of the oldest copy. What the driver tells nothing of keeps its host memory, or the
 * address that it is copied to: `*unknown`. So does what the end of the process leaves. */
static bool end_copy(bool *unknown) {
    struct flight ended;
    int cu_result;
    while (!pipeline_take_ended(&ended, &cu_result)) {
        *unknown = *unknown || ending_has_begun();
        if (ending_has_begun()) return false;
        clock_sleep_ns(POLL_NS);
    }
    if (ended.has_no_end && ended.outward) {
        ended.chunk->host = NULL;
        chunks_settle_fixed(ended.chunk);
    }
    *unknown = *unknown || ended.has_no_end;
    return cu_result == CUDA_SUCCESS && !ended.has_no_end;
}

static bool end_copies(uint32_t but, bool *unknown) {
    bool all = true;
    while (pipeline_flights() > but && !ending_has_begun())
        all = end_copy(unknown) && all;
    return all && pipeline_flights() <= but;
}

/* The pages of a segment are made meanwhile where that is needed. */
static void *take_host(int device, uint64_t bytes) {
    void *host = host_arena_take(bytes);
    while (host == NULL && host_arena_prepare(host_arena_free() + bytes, device, bytes, 0))
        host = host_arena_take(bytes);
    return host;
}

static enum physical_whole begin_to_leave(struct chunk *chunk, void *context) {
    if (chunk->host != NULL) return WHOLE_MADE; /* it has come just now, and has its copy still */
    chunk->context = context;
    if (device_memory_open(chunk) != CUDA_SUCCESS) return WHOLE_STAYS;
    if (!chunk->is_empty) chunk->host = take_host(chunk->device, chunk->bytes);
    if (!chunk->is_empty && chunk->host == NULL) return WHOLE_NO_HOST;
    return pipeline_begin(chunk, true) == CUDA_SUCCESS ? WHOLE_MADE : WHOLE_STAYS;
}

/* Neither has the turn ended nor its wait, and the process goes on. */
static bool is_still_wanted(const struct physical *physical) {
    return !ending_has_begun() && mover_restores() &&
           physical_whole(physical->number, false) == WHOLE_WANTED;
}

/* WHOLE_MADE: all of it is in host memory too. */
static enum physical_whole copy_out(struct physical *physical, void *context) {
    bool unknown = false;
    enum physical_whole answer = WHOLE_MADE;
    if (!pipeline_use_context(context)) return WHOLE_STAYS;
    for (size_t i = 0; i < physical->part_count && answer == WHOLE_MADE; i++) {
        if (!is_still_wanted(physical)) answer = WHOLE_WANTED; /* another time */
        if (answer == WHOLE_MADE) answer = begin_to_leave(chunk_of(physical, i), context);
        if (!end_copies(FLIGHTS - 1, &unknown)) answer = WHOLE_STAYS;
    }
    if (!end_copies(0, &unknown)) return WHOLE_STAYS;
    return answer == WHOLE_MADE && !is_still_wanted(physical) ? WHOLE_WANTED : answer;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

struct whole {
    CUmemGenericAllocationHandle handle; /* 0: none */
    CUdeviceptr copied_at;               /* 0: nothing is reserved for it */
    bool is_mapped;                      /* there */
};

static CUresult map_views(const struct physical *physical, const struct whole *whole) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    struct view *view = NULL;
    while (result == CUDA_SUCCESS && (view = physical_next_view(physical, view)) != NULL) {
        result = cuda->memory_map(view->address, physical->bytes, 0, whole->handle, 0);
        view->pieces[0].there = result == CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            result = device_memory_give_these(view->address, physical->bytes, view->access);
    }
    return result;
}

static CUresult map_for_copies(const struct physical *physical, struct whole *whole) {
    const struct driver *cuda = driver_get();
    CUresult result =
        cuda->address_reserve(&whole->copied_at, physical->bytes, CHUNK_GRANULE, 0, 0);
    if (result != CUDA_SUCCESS) whole->copied_at = 0;
    if (result == CUDA_SUCCESS)
        result = cuda->memory_map(whole->copied_at, physical->bytes, 0, whole->handle, 0);
    whole->is_mapped = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = device_memory_give_access(whole->copied_at, physical->bytes, physical->device,
                                           physical->device);
    return result;
}

static bool copy_in(struct physical *physical, const struct whole *whole, bool *unknown) {
    bool all = true;
    uint64_t address = whole->copied_at;
    for (size_t i = 0; i < physical->part_count && all; i++) {
        struct chunk *chunk = chunk_of(physical, i);
        all = !ending_has_begun() && pipeline_begin_at(chunk, address, false) == CUDA_SUCCESS &&
              end_copies(FLIGHTS - 1, unknown);
        address += chunk->bytes;
    }
    return end_copies(0, unknown) && all;
}

static CUresult end_copying(const struct physical *physical, struct whole *whole) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    if (whole->is_mapped) result = cuda->memory_unmap(whole->copied_at, physical->bytes);
    whole->is_mapped = result != CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && whole->copied_at != 0)
        cuda->address_free(whole->copied_at, physical->bytes);
    return result;
}

/* Its views are free again. A copy that may still run keeps the rest. */
static void take_down(const struct physical *physical, struct whole *whole, bool unknown) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    struct view *view = NULL;
    while ((view = physical_next_view(physical, view)) != NULL) {
        if (!view->pieces[0].there) continue;
        result = cuda->memory_unmap(view->address, physical->bytes);
        if (result == CUDA_SUCCESS) view->pieces[0].there = false;
    }
    if (!unknown) end_copying(physical, whole);
    if (!unknown && whole->handle != 0) result = cuda->memory_release(whole->handle);
    if (unknown || result != CUDA_SUCCESS)
        log_info("%llu bytes of GPU memory are lost until this process ends (error %d).",
                 (unsigned long long)physical->bytes, (int)result);
}

static enum physical_whole make_of_host(struct physical *physical, struct whole *whole) {
    bool unknown = false;
    CUresult result =
        driver_get()->memory_create(&whole->handle, physical->bytes, &physical->properties, 0);
    if (result != CUDA_SUCCESS) whole->handle = 0;
    if (result == CUDA_SUCCESS) result = map_views(physical, whole);
    if (result == CUDA_SUCCESS) result = map_for_copies(physical, whole);
    if (result == CUDA_SUCCESS && copy_in(physical, whole, &unknown)) {
        end_copying(physical, whole);
        return WHOLE_MADE;
    }
    if (ending_has_begun()) return WHOLE_WANTED;
    log_debug("whole: the driver answers %d", (int)result);
    take_down(physical, whole, unknown);
    return result == CUDA_SUCCESS ? WHOLE_STAYS : WHOLE_NO_ROOM;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

/* Its host memory has all of it. */
static bool comes_back(struct chunk *chunk) {
    bool unknown = false;
    CUresult result = device_memory_open(chunk);
    if (result == CUDA_SUCCESS) result = device_memory_put(chunk);
    if (result == CUDA_SUCCESS) result = device_memory_give_accesses(chunk);
    if (result == CUDA_SUCCESS) result = (CUresult)pipeline_begin(chunk, false);
    const bool came = result == CUDA_SUCCESS && end_copies(0, &unknown);
    if (!came && !unknown) device_memory_take_off(chunk);
    device_memory_close(chunk);
    return came;
}

/* As it was, or, where that cannot be now, as parked memory that comes back with the turn. */
static void come_back(struct physical *physical) {
    bool all = true;
    for (size_t i = 0; i < physical->part_count; i++) {
        struct chunk *chunk = chunk_of(physical, i);
        all = all && comes_back(chunk);
        chunks_settle(chunk, all ? CHUNK_BACK : CHUNK_PARKED);
    }
}

static void stay(struct physical *physical) {
    for (size_t i = 0; i < physical->part_count; i++) {
        struct chunk *chunk = chunk_of(physical, i);
        if (chunk->state != CHUNK_LEAVING) continue; /* nobody knows whether its copy has ended */
        device_memory_close(chunk);
        if (chunk->was != CHUNK_BACK) {
            host_arena_give(chunk->host, chunk->bytes);
            chunk->host = NULL;
        }
        chunks_settle(chunk, (enum chunk_state)chunk->was);
    }
}

static void free_own_addresses(struct physical *physical) {
    for (size_t i = 0; i < physical->part_count; i++) {
        struct mapping *own = &physical->parts[i].own;
        if (own->address != 0) driver_get()->address_free(own->address, own->bytes);
        own->address = 0;
    }
}

static bool take_off(struct physical *physical) {
    bool all = true;
    for (size_t i = 0; i < physical->part_count; i++) {
        struct chunk *chunk = chunk_of(physical, i);
        device_memory_close(chunk);
        all = all && device_memory_take_off(chunk) == CUDA_SUCCESS;
        chunks_settle(chunk, CHUNK_COMING); /* what counts is in host memory from now on */
    }
    return all;
}

static void enter(struct physical *physical, const struct whole *whole) {
    const size_t part_count = physical->part_count;
    struct chunk first = *chunk_of(physical, 0);
    free_own_addresses(physical);
    physical_whole_made(physical, whole->handle);
    host_arena_give(first.host, first.bytes);
    for (size_t i = 1; i < part_count; i++)
        host_arena_give(chunk_of(physical, i)->host, chunk_of(physical, i)->bytes);
}

/* Where the process ends, all stays as it is: what exit handlers read is on the device until the
 * parts are taken off it, and in host memory from then on. */
static enum physical_whole make(struct physical *physical) {
    struct whole whole = {0};
    void *context = chunk_of(physical, 0)->context;
    if (context == NULL) context = contexts_of_device(physical->device);
    if (context == NULL || contexts_has_failed(context) || residency_why_it_stays() != NULL) {
        stay(physical);
        return WHOLE_STAYS;
    }
    enum physical_whole answer = copy_out(physical, context);
    if (ending_has_begun()) return WHOLE_WANTED;
    if (answer != WHOLE_MADE) {
        stay(physical);
        return answer;
    }
    answer = take_off(physical) ? make_of_host(physical, &whole) : WHOLE_STAYS;
    if (ending_has_begun()) return WHOLE_WANTED;
    if (answer == WHOLE_MADE)
        enter(physical, &whole);
    else
        come_back(physical);
    return answer;
}

bool wholes_step(bool *later) {
    struct physical *physical = mover_claim_whole(later);
    if (physical == NULL) return false;
    const uint64_t began_ns = clock_now_ns(), bytes = physical->bytes;
    const enum physical_whole answer = make(physical);
    log_debug("whole: %llu bytes, %s, %.3f ms", (unsigned long long)bytes,
              answer == WHOLE_MADE ? "made" : "not made",
              (double)(clock_now_ns() - began_ns) / 1e6);
    physical_whole_end(physical, answer);
    return answer != WHOLE_WANTED;
}
