#include "allocate/making.h"

#include "allocate/memory.h"
#include "allocate/pooling.h"
#include "base/log.h"
#include "gate/gate.h"
#include "memory/device_memory.h"
#include "swap/host_arena.h"

#define ROOM_TRIES_MAX 5

static CUresult make_behind_gate(const struct making *making, struct memory_claim *claim) {
    const struct gate_call call = {GATE_ALLOC, GATE_STREAM_LEGACY, NULL, making->call_name};
    const enum gate_answer answer = memory_enter(claim, call);
    if (answer == GATE_CANCELLED) return (CUresult)GATE_CANCELLED_RESULT;
    const CUresult result = making->make(making->argument);
    if (answer == GATE_PASS) gate_leave(call, (int)result);
    return result;
}

/* Tries again while others make room. */
static CUresult make_with_room(const struct making *making, struct memory_claim *claim) {
    CUresult result = make_behind_gate(making, claim);
    for (uint32_t tries = 0; result == CUDA_ERROR_OUT_OF_MEMORY && tries < ROOM_TRIES_MAX;
         tries++) {
        if (!pooling_give_up(making->device))
            result = (CUresult)memory_room_for_block(claim, tries, making->call_name);
        else
            result = CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) return result;
        result = make_behind_gate(making, claim);
    }
    if (result != MAKING_NO_HOST_MEMORY) return result;
    memory_refused(REFUSAL_HOST, making->device, making->bytes, making->call_name);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult making_run(const struct making *making) {
    struct memory_claim claim;
    pooling_make_room(making->device, making->bytes);
    CUresult result =
        (CUresult)memory_claim(&claim, making->device, making->bytes, making->call_name);
    if (result != CUDA_SUCCESS) return result;
    result = make_with_room(making, &claim);
    if (result == CUDA_SUCCESS)
        memory_claim_ended(&claim);
    else
        memory_unclaim(&claim);
    return result;
}

void making_drop_chunk(struct chunk *chunk) {
    const CUresult result = device_memory_take_off(chunk);
    if (result != CUDA_SUCCESS) /* after a sticky error, say */
        log_info(
            "%llu bytes of GPU memory could not be freed (error %d). They are free when this "
            "process ends.",
            (unsigned long long)chunk->bytes, (int)result);
    if (chunk->host != NULL) host_arena_give(chunk->host, chunk->bytes);
}
