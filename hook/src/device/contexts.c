#include "device/contexts.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "allocate/backing.h"
#include "allocate/memory.h"
#include "base/driver.h"
#include "base/symbols.h"
#include "device/lifecycle.h"
#include "sharing/ipc.h"

typedef CUresult (*context_from_green_function)(CUcontext *context, CUgreenCtx green_context);

void contexts_cuda_opened(void) {
    static _Atomic pid_t opened_in;
    const pid_t self = getpid();
    if (atomic_exchange(&opened_in, self) != self) lifecycle_cuda_opened();
}

static struct allocation record_of(enum registry_space space, uint64_t key, void *context,
                                   int device) {
    return (struct allocation){
        .key = key,
        .link = (uintptr_t)context,
        .references = 1,
        .device = device,
        .space = (uint8_t)space,
        .kind = ALLOCATION_NONE,
    };
}

/* The device, for contexts_closed. */
static int going(void *context, int device) {
    const bool was_known = lifecycle_context_closing(context, device);
    backing_context_ends(context);
    ipc_context_ends(context);
    registry_drop_context(context);
    memory_tell(device);
    return was_known ? device : CONTEXTS_NONE;
}

bool contexts_own_memory(void *context, int device) {
    struct allocation record;
    if (registry_find(REGISTRY_CONTEXT, (uintptr_t)context, &record)) return true;
    return registry_find(REGISTRY_PRIMARY, (uint64_t)device, &record) &&
           record.link == (uintptr_t)context;
}

void contexts_closed(int device) {
    if (device != CONTEXTS_NONE) lifecycle_context_closed(device);
}

void contexts_opened(void *context, int device) {
    const struct allocation record =
        record_of(REGISTRY_CONTEXT, (uintptr_t)context, context, device);
    registry_add(&record);
    lifecycle_context_opened(context, device);
}

void contexts_attached(void *context) {
    registry_retain(REGISTRY_CONTEXT, (uintptr_t)context, NULL);
}

int contexts_detaching(void *context) {
    struct allocation removed;
    if (registry_release(REGISTRY_CONTEXT, (uintptr_t)context, &removed) == 0)
        return going(context, removed.device);
    return CONTEXTS_NONE;
}

int contexts_closing(void *context) {
    struct allocation removed;
    if (registry_take(REGISTRY_CONTEXT, (uintptr_t)context, &removed))
        return going(context, removed.device);
    return CONTEXTS_NONE;
}

void contexts_primary_retained(void *context, int device) {
    const struct allocation record = record_of(REGISTRY_PRIMARY, (uint64_t)device, context, device);
    if (registry_retain(REGISTRY_PRIMARY, (uint64_t)device, &record) == 1)
        lifecycle_context_opened(context, device);
}

int contexts_primary_releasing(int device) {
    struct allocation removed;
    if (registry_release(REGISTRY_PRIMARY, (uint64_t)device, &removed) == 0)
        return going((void *)(uintptr_t)removed.link, device);
    return CONTEXTS_NONE;
}

int contexts_primary_resetting(int device) {
    struct allocation removed;
    if (registry_take(REGISTRY_PRIMARY, (uint64_t)device, &removed))
        return going((void *)(uintptr_t)removed.link, device);
    return CONTEXTS_NONE;
}

/* A green context is a share of a primary context. It may be all that a process ever opens. */
void contexts_green_opened(void *green_context, int device) {
    context_from_green_function context_from_green =
        (context_from_green_function)symbols_real("cuCtxFromGreenCtx");
    CUcontext context = NULL;
    if (context_from_green == NULL || context_from_green(&context, green_context) != CUDA_SUCCESS)
        return;
    const struct allocation record =
        record_of(REGISTRY_GREEN, (uintptr_t)green_context, context, device);
    registry_add(&record);
    lifecycle_context_opened(context, device);
}

/* Its memory belongs to the primary context and stays. */
int contexts_green_closing(void *green_context) {
    struct allocation removed;
    if (registry_take(REGISTRY_GREEN, (uintptr_t)green_context, &removed) &&
        lifecycle_context_closing((void *)(uintptr_t)removed.link, removed.device))
        return removed.device;
    return CONTEXTS_NONE;
}

CUresult contexts_wait_for_work(void *context) {
    const struct driver *cuda = driver_get();
    CUresult result = cuda->context_push(context);
    if (result != CUDA_SUCCESS) return result;
    lifecycle_synchronise_began();
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    result = cuda->context_synchronize();
    driver_relaxed_end(cuda, mode);
    lifecycle_synchronise_ended((int)result);
    CUcontext popped;
    cuda->context_pop(&popped);
    return result;
}
