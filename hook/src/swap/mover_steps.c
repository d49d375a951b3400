#include "swap/mover_steps.h"

#include "base/clock.h"
#include "base/driver.h"
#include "base/log.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "memory/device_memory.h"
#include "memory/pooled.h"
#include "swap/host_arena.h"
#include "swap/managed_room.h"
#include "swap/residency.h"

static CUresult map(struct chunk *chunk) {
    CUresult result = device_memory_open(chunk);
    if (result == CUDA_SUCCESS) result = device_memory_put(chunk);
    if (result == CUDA_SUCCESS) result = device_memory_give_accesses(chunk);
    if (result != CUDA_SUCCESS) device_memory_take_off(chunk);
    return result;
}

static void settle(struct chunk *chunk, enum chunk_state state) {
    device_memory_close(chunk);
    chunks_settle(chunk, state);
}

/* ---- failures ---------------------------------------------------------------------------------
 */

static void note_failure(const struct chunk *chunk, int cu_result, const char *what) {
    log_debug("%s: the driver answers %d for %llu bytes on device %d", what, cu_result,
              (unsigned long long)chunk->bytes, chunk->device);
    if (failure_is_sticky(cu_result)) failure_of(contexts_generation(chunk->context), cu_result);
}

/* It stays where it is from now on: what a sticky error has in its hands cannot be copied. A copy
 * without an end may still use the address that it was copied at. */
static void leave_alone(struct chunk *chunk) {
    chunk->host = NULL;
    chunks_settle_fixed(chunk);
}

static void give_host(struct chunk *chunk) {
    host_arena_give(chunk->host, chunk->bytes);
    chunk->host = NULL;
}

/* It could not leave, and is still whole where it is mapped: it is tried again later. */
static enum step_answer leave_for_now(struct chunk *chunk, int cu_result) {
    give_host(chunk);
    note_failure(chunk, cu_result, "park");
    device_memory_close(chunk);
    if (failure_is_sticky(cu_result))
        leave_alone(chunk);
    else
        chunks_settle_failed(chunk, clock_now_ns());
    return STEP_FAILED;
}

/* The host memory has what the device has: the latter goes. Where the driver refuses, the chunk
 * stays on the device; where it has unmapped some already, its device memory is kept for it. */
static enum step_answer park(struct chunk *chunk) {
    const CUresult result = device_memory_take_off(chunk);
    chunk->has_pages = chunk->managed_at != 0;
    if (device_memory_is_whole(chunk)) return leave_for_now(chunk, (int)result);
    if (result != CUDA_SUCCESS) note_failure(chunk, (int)result, "release");
    settle(chunk, CHUNK_PARKED);
    return result == CUDA_SUCCESS ? STEP_DONE : STEP_FAILED;
}

/* It could not be copied in; its host memory still has all of it. */
static enum step_answer stay_parked(struct chunk *chunk, int cu_result) {
    device_memory_take_off(chunk);
    note_failure(chunk, cu_result, "restore");
    settle(chunk, CHUNK_PARKED);
    return cu_result == CUDA_ERROR_OUT_OF_MEMORY ? STEP_NO_ROOM : STEP_FAILED;
}

/* Nobody knows whether the copy has ended, so nothing that it may still use is given back: not the
 * device memory on the way in, which is used again when the chunk comes (behind this copy, in the
 * same stream); not the host memory on the way out. */
static enum step_answer give_up_copy(const struct flight *flight, int cu_result) {
    note_failure(flight->chunk, cu_result, "copy without an end");
    if (flight->outward)
        leave_alone(flight->chunk);
    else
        chunks_settle(flight->chunk, CHUNK_PARKED);
    return STEP_FAILED;
}

/* ---- steps ------------------------------------------------------------------------------------
 */

/* Its chunk stays, to be claimed again. */
static enum step_answer not_now(struct chunk *chunk, enum step_answer answer) {
    give_host(chunk);
    settle(chunk, CHUNK_RESIDENT);
    return answer;
}

/* Host memory to copy it to; what is managed has the driver's, and what is empty needs none. */
static enum step_answer find_host(struct chunk *chunk) {
    if (chunk->managed_at != 0) {
        managed_room_note_wish(chunk);
        return managed_room_on_host(chunk) ? STEP_DONE : STEP_NO_SYSTEM;
    }
    if (chunk->is_empty) return STEP_DONE;
    chunk->host = host_arena_take(chunk->bytes);
    return chunk->host != NULL ? STEP_DONE : STEP_NO_HOST;
}

static enum step_answer begin_copy(int device, struct chunk *(*claim_locked)(int device),
                                   uint64_t *bytes) {
    struct chunk *chunk;
    const enum step_answer claimed = mover_claim(MOVER_PARK, claim_locked, device, &chunk);
    if (claimed != STEP_DONE) return claimed;
    *bytes = chunk->bytes;
    if (chunk->context == NULL) chunk->context = contexts_of_device(device);
    if (contexts_has_failed(chunk->context)) {
        leave_alone(chunk);
        return STEP_DONE;
    }
    int cu_result = pipeline_open(chunk->context);
    if (cu_result == CUDA_SUCCESS) cu_result = (int)device_memory_open(chunk);
    if (cu_result == CUDA_SUCCESS) {
        const enum step_answer found = find_host(chunk);
        if (found != STEP_DONE) return not_now(chunk, found);
        cu_result = pipeline_begin(chunk, true);
    }
    if (cu_result == CUDA_SUCCESS) return STEP_DONE;
    if (cu_result == CUDA_ERROR_OUT_OF_MEMORY) return not_now(chunk, STEP_NO_ROOM);
    return leave_for_now(chunk, cu_result);
}

enum step_answer step_leave(int device, uint64_t *bytes) {
    return begin_copy(device, chunks_claim_leaving_locked, bytes);
}

enum step_answer step_copy(int device, uint64_t *bytes) {
    return begin_copy(device, chunks_claim_copying_locked, bytes);
}

static CUresult begin_to_come(struct chunk *chunk) {
    if (!pipeline_use_context(chunk->context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (chunk->managed_at != 0 && !managed_room_on_device(chunk)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = map(chunk);
    return result == CUDA_SUCCESS ? (CUresult)pipeline_begin(chunk, false) : result;
}

static void lose(struct chunk *chunk) {
    pooled_lost(chunk);
    chunks_settle(chunk, CHUNK_FREEING);
}

enum step_answer step_come(int device, enum mover_goal goal, uint64_t *bytes) {
    struct chunk *chunk;
    const enum step_answer claimed = mover_claim(goal, residency_claim_locked, device, &chunk);
    if (claimed != STEP_DONE) return claimed;
    *bytes = chunk->bytes;
    if (chunk->context == NULL) chunk->context = contexts_of_device(device);
    /* Nothing can be copied in a context with a sticky error, or without one, so what is parked is
     * lost with it. As a chunk that is being freed it keeps nobody's gate shut. */
    if (chunk->context == NULL || contexts_has_failed(chunk->context)) {
        lose(chunk);
        return STEP_NO_CHUNK;
    }
    const CUresult result = begin_to_come(chunk);
    return result == CUDA_SUCCESS ? STEP_DONE : stay_parked(chunk, (int)result);
}

bool step_lose(int device) {
    struct chunk *chunk;
    bool any = false;
    while (chunks_sums_of(device).to_come > 0 && contexts_of_device(device) == NULL &&
           atomic_load(&contexts_leaving) == 0 &&
           mover_claim(MOVER_RESTORE, chunks_claim_coming_locked, device, &chunk) == STEP_DONE) {
        lose(chunk);
        any = true;
    }
    return any;
}

enum step_answer step_unmap(int device, enum mover_goal goal, uint64_t *bytes) {
    struct chunk *chunk;
    const enum step_answer claimed = mover_claim(goal, chunks_claim_back_locked, device, &chunk);
    if (claimed != STEP_DONE) return claimed;
    *bytes = chunk->bytes;
    pipeline_use_context(chunk->context);
    return park(chunk);
}

/* What was wanted may have changed since the copy began: then it was in vain, and nothing is lost.
 * What is managed has left all the same. Nothing is written to it until the goal is another one, so
 * a copy that was made ahead of need is good until then. */
static enum step_answer finish_leaving(struct chunk *chunk, int cu_result, enum mover_goal goal) {
    const bool has_left = chunk->managed_at != 0 && goal != MOVER_REST;
    const bool is_over = goal == MOVER_PARK && residency_bytes_over(chunk->device) > 0;
    if (cu_result != CUDA_SUCCESS) return leave_for_now(chunk, cu_result);
    if (has_left || (is_over && chunks_goes(chunk))) return park(chunk);
    if (goal != MOVER_PARK || !residency_copies_ahead(chunk->device))
        return not_now(chunk, STEP_NO_CHUNK);
    device_memory_close(chunk);
    chunks_settle_copied(chunk);
    return STEP_COPIED;
}

static enum step_answer finish_coming(struct chunk *chunk, int cu_result) {
    if (cu_result != CUDA_SUCCESS) return stay_parked(chunk, cu_result);
    settle(chunk, chunk->managed_at != 0 ? CHUNK_RESIDENT : CHUNK_BACK);
    return STEP_DONE;
}

enum step_answer step_finish(struct flight *flight, int cu_result, enum mover_goal goal) {
    if (flight->has_no_end) return give_up_copy(flight, cu_result);
    pipeline_use_context(flight->chunk->context);
    return flight->outward ? finish_leaving(flight->chunk, cu_result, goal)
                           : finish_coming(flight->chunk, cu_result);
}
