#include "mover_steps.h"

#include <stddef.h>

#include "clock.h"
#include "device_memory.h"
#include "driver.h"
#include "failure.h"
#include "host_arena.h"
#include "log.h"
#include "peers.h"
#include "residency.h"
#include "streams.h"

#define ACCESSES_MAX (PEERS_MAX + 1)

/* ---- mapping ----------------------------------------------------------------------------------
 */

static void unmap(const struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    cuda->memory_unmap(chunk->address, chunk->bytes);
    cuda->memory_release(chunk->handle);
}

static CUresult give_access(const struct chunk *chunk) {
    CUmemAccessDesc accesses[ACCESSES_MAX];
    accesses[0] = (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = chunk->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    const int peers = peers_access(chunk->device, &accesses[1], ACCESSES_MAX - 1);
    return driver_get()->memory_set_access(chunk->address, chunk->bytes, accesses,
                                           (size_t)peers + 1);
}

/* Device memory at the chunk's address, as it was when it was allocated. */
static CUresult map(struct chunk *chunk) {
    const struct driver *cuda = driver_get();
    CUmemGenericAllocationHandle handle;
    CUresult result = device_memory_create(cuda, &handle, chunk->bytes, chunk->device);
    if (result != CUDA_SUCCESS) return result;
    result = cuda->memory_map(chunk->address, chunk->bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        cuda->memory_release(handle);
        return result;
    }
    chunk->handle = handle;
    result = give_access(chunk);
    if (result == CUDA_SUCCESS) return result;
    unmap(chunk);
    chunk->handle = 0;
    return result;
}

/* ---- failures ---------------------------------------------------------------------------------
 */

static void note_failure(const struct chunk *chunk, int cu_result, const char *what) {
    log_debug("%s: the driver answers %d for %llu bytes on device %d", what, cu_result,
              (unsigned long long)chunk->bytes, chunk->device);
    if (failure_is_sticky(cu_result)) failure_in_context(chunk->context, cu_result);
}

/* It stays where it is from now on: what a sticky error has in its hands cannot be copied. */
static void leave_alone(const struct chunk *chunk) {
    chunks_settle(chunk->address, CHUNK_RESIDENT, chunk->handle, NULL);
    chunks_fix(chunk->address, chunk->bytes);
}

/* It could not be copied out, and is still whole: it is tried again later. */
static void leave_for_now(const struct chunk *chunk, int cu_result) {
    if (failure_is_sticky(cu_result))
        leave_alone(chunk);
    else
        chunks_settle_failed(chunk->address, chunk->handle, clock_now_ns());
    note_failure(chunk, cu_result, "park");
}

/* Nothing can be copied in a context with a sticky error, so what is parked is lost with it. As a
 * chunk that is being freed it keeps nobody's gate shut. */
static void bury(const struct chunk *chunk) {
    chunks_settle(chunk->address, CHUNK_FREEING, 0, chunk->host);
}

/* ---- steps ------------------------------------------------------------------------------------
 */

enum step_answer step_leave(int device, uint64_t *bytes) {
    struct chunk chunk;
    if (!mover_claim(MOVER_PARK, chunks_claim_leaving, device, &chunk)) return STEP_NO_CHUNK;
    *bytes = chunk.bytes;
    if (streams_context_has_failed(chunk.context)) {
        leave_alone(&chunk);
        return STEP_DONE;
    }
    chunk.host = pipeline_use_context(chunk.context) ? host_arena_take(chunk.bytes) : NULL;
    if (chunk.host == NULL) {
        chunks_settle(chunk.address, CHUNK_RESIDENT, chunk.handle, NULL);
        return STEP_NO_HOST;
    }
    const int cu_result = pipeline_begin(&chunk, true);
    if (cu_result == CUDA_SUCCESS) return STEP_DONE;
    host_arena_give(chunk.host, chunk.bytes);
    leave_for_now(&chunk, cu_result);
    return STEP_FAILED;
}

enum step_answer step_come(int device, uint64_t *bytes) {
    struct chunk chunk;
    if (!mover_claim(MOVER_RESTORE, chunks_claim_coming, device, &chunk)) return STEP_NO_CHUNK;
    *bytes = chunk.bytes;
    if (streams_context_has_failed(chunk.context)) {
        bury(&chunk);
        return STEP_DONE;
    }
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    /* While it comes it counts as there. */
    const bool has_credit = residency_bytes_over(device) == 0;
    if (has_credit && pipeline_use_context(chunk.context)) result = map(&chunk);
    if (has_credit && result == CUDA_SUCCESS) {
        result = (CUresult)pipeline_begin(&chunk, false);
        if (result == CUDA_SUCCESS) return STEP_DONE;
        unmap(&chunk);
    }
    chunks_settle(chunk.address, CHUNK_PARKED, 0, chunk.host);
    if (!has_credit) return STEP_NO_CREDIT;
    note_failure(&chunk, (int)result, "restore");
    return result == CUDA_ERROR_OUT_OF_MEMORY ? STEP_NO_ROOM : STEP_FAILED;
}

enum step_answer step_unmap(int device, enum mover_goal goal, uint64_t *bytes) {
    struct chunk chunk;
    if (!mover_claim(goal, chunks_claim_back, device, &chunk)) return STEP_NO_CHUNK;
    *bytes = chunk.bytes;
    pipeline_use_context(chunk.context);
    unmap(&chunk);
    chunks_settle(chunk.address, CHUNK_PARKED, 0, chunk.host);
    return STEP_DONE;
}

/* What was wanted may have changed since the copy began: then it was in vain, and nothing is lost.
 */
static enum step_answer finish_leaving(const struct chunk *chunk, int cu_result,
                                       enum mover_goal goal) {
    const bool goes =
        cu_result == CUDA_SUCCESS && goal == MOVER_PARK && residency_bytes_over(chunk->device) > 0;
    if (goes) {
        unmap(chunk);
        chunks_settle(chunk->address, CHUNK_PARKED, 0, chunk->host);
        return STEP_DONE;
    }
    host_arena_give(chunk->host, chunk->bytes);
    if (cu_result == CUDA_SUCCESS) {
        chunks_settle(chunk->address, CHUNK_RESIDENT, chunk->handle, NULL);
        return STEP_NO_CHUNK;
    }
    leave_for_now(chunk, cu_result);
    return STEP_FAILED;
}

static enum step_answer finish_coming(const struct chunk *chunk, int cu_result) {
    if (cu_result == CUDA_SUCCESS) {
        chunks_settle(chunk->address, CHUNK_BACK, chunk->handle, chunk->host);
        return STEP_DONE;
    }
    unmap(chunk);
    chunks_settle(chunk->address, CHUNK_PARKED, 0, chunk->host);
    note_failure(chunk, cu_result, "restore");
    return STEP_FAILED;
}

enum step_answer step_finish(const struct flight *flight, int cu_result, enum mover_goal goal) {
    pipeline_use_context(flight->chunk.context);
    return flight->outward ? finish_leaving(&flight->chunk, cu_result, goal)
                           : finish_coming(&flight->chunk, cu_result);
}
