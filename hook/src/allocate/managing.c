#include "allocate/managing.h"

#include <stdlib.h>

#include "base/driver.h"
#include "base/ending.h"
#include "device/contexts.h"
#include "gate/gate.h"
#include "swap/mover.h"
#include "swap/residency.h"

/* Without concurrent access the host may not touch such memory while the device works, and the
 * driver moves all of it at each launch. */
static bool can_prefetch(int device) {
    int concurrent = 0;
    const CUresult result = driver_get()->device_attribute(
        &concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    return result == CUDA_SUCCESS && concurrent != 0;
}

/* A record of it; NULL where it does not move. */
static struct managed *record_of(int device, uint64_t address, uint64_t bytes) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    if (!residency_swaps() || !driver_can_move(cuda)) return NULL;
    if (device >= REGISTRY_DEVICES_MAX || bytes < MANAGED_BYTES_LEAST) return NULL;
    if (cuda->context_get_current(&context) != CUDA_SUCCESS || context == NULL) return NULL;
    const uint64_t generation = contexts_owner(context);
    if (generation == 0 || !can_prefetch(device)) return NULL;
    return managed_new(address, bytes, context, generation, device);
}

static bool claim_pieces(struct managed *managed) {
    for (size_t i = 0; i < managed->piece_count; i++)
        if (!chunks_claim_for_free(&managed->pieces[i].chunk)) return false; /* the process ends */
    return true;
}

/* It is gone. */
static void forget(struct managed *managed) {
    const int device = managed->device;
    managed_remove(managed);
    memory_tell(device);
    mover_freed();
}

void managing_keep(const struct memory_claim *claim, uint64_t address, uint64_t bytes) {
    if (claim->device < 0) return;
    managing_free_ended(managing_free_begins(address), CUDA_SUCCESS); /* its end was not seen */
    struct managed *managed = record_of(claim->device, address, bytes);
    if (managed != NULL && managed_enter(managed, claim->bytes)) {
        memory_claim_ended(claim);
        return;
    }
    free(managed);
    memory_keep(claim, KIND_MANAGED, address, bytes);
}

struct managed *managing_free_begins(uint64_t address) {
    struct managed *managed = managed_close(address);
    return managed != NULL && claim_pieces(managed) ? managed : NULL;
}

void managing_free_ended(struct managed *managed, int cu_result) {
    if (managed == NULL) return;
    if (cu_result == CUDA_SUCCESS) {
        forget(managed);
    } else {
        managed_reopen(managed);
        memory_tell(managed->device);
    }
}

bool managing_advice_fails(uint64_t address, uint64_t bytes, int advice, const char *call_name,
                           int *cu_result) {
    if (advice != CU_MEM_ADVISE_SET_READ_MOSTLY || !managed_is_in(address, bytes)) return false;
    const struct gate_call call = {GATE_LOOK, GATE_STREAM_LEGACY, NULL, call_name};
    const enum gate_answer answer = gate_enter(call);
    *cu_result = GATE_CANCELLED_RESULT;
    if (answer == GATE_CANCELLED) return true;
    const int device = managed_fix(address, bytes);
    if (answer == GATE_PASS) gate_leave(call, CUDA_SUCCESS);
    if (device >= 0) memory_tell(device);
    return false;
}

void managing_context_ended(uint64_t generation) {
    struct managed *managed;
    while (!ending_has_begun() && (managed = managed_close_of_context(generation)) != NULL)
        if (claim_pieces(managed)) forget(managed);
}
