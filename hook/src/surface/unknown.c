#include "surface/unknown.h"

#include <cuda.h>
#include <stdio.h>

#include "base/hold.h"
#include "gate/gate.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "swap/residency.h"

#define NAME_BYTES 64

_Atomic(void *) unknown_real[UNKNOWN_STUBS]; /* written under LOCK_UNKNOWN, each once */
static char names[UNKNOWN_STUBS][NAME_BYTES];
_Atomic uint8_t unknown_is_used;

static void stop_parking(const char *name) {
    static char why[NAME_BYTES + 200]; /* written once, under LOCK_UNKNOWN */
    lock_take(LOCK_UNKNOWN);
    if (!why[0])
        snprintf(why, sizeof(why),
                 "This process calls %s, which this version of GPU sharing does not know. Install "
                 "a newer jupyter-gpushare.",
                 name);
    lock_release(LOCK_UNKNOWN);
    residency_stop_parking(why);
}

/* What is parked comes back first, whatever context the thread has. */
int unknown_called(uint32_t stub) {
    const struct gate_call call = {blocks_are_there() ? GATE_LOOK : GATE_LAUNCH, GATE_STREAM_LEGACY,
                                   NULL, "a new function"};
    stop_parking(names[stub]);
    const enum gate_answer answer = gate_enter(call);
    if (answer == GATE_CANCELLED) return CUDA_ERROR_NOT_PERMITTED;
    if (answer == GATE_PASS) gate_leave(call, CUDA_SUCCESS);
    if (chunks_all_here()) atomic_store(&unknown_is_used, 1);
    return CUDA_SUCCESS;
}

void *unknown_stub_of(void *real, const char *name) {
    void *stub = NULL;
    lock_take(LOCK_UNKNOWN);
    for (size_t i = 0; i < UNKNOWN_STUBS && stub == NULL; i++) {
        void *known = atomic_load(&unknown_real[i]);
        if (known != NULL && known != real) continue;
        if (known == NULL) snprintf(names[i], NAME_BYTES, "%s", name);
        atomic_store(&unknown_real[i], real);
        stub = (void *)(uintptr_t)(unknown_stubs + i * UNKNOWN_STUB_BYTES);
    }
    lock_release(LOCK_UNKNOWN);
    if (stub != NULL) return stub;
    stop_parking(name); /* more than any driver has: it may be called without a word to us */
    return real;
}
