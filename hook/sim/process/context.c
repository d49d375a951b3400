#define _GNU_SOURCE
#include "process/context.h"

#include "process/process.h"

#define CONTEXT_STACK_MAX 32

pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
struct object_pool context_pool = OBJECT_POOL(struct context, 4096);

struct context_stack {
    int depth;
    struct context *entries[CONTEXT_STACK_MAX]; /* the current one is the last */
};

static _Thread_local struct context_stack stack __attribute__((tls_model("initial-exec")));
static _Thread_local bool calls_are_forbidden __attribute__((tls_model("initial-exec")));

bool device_check(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < process_device_count;
}

const struct sim_device *device_row(CUdevice ordinal) {
    return &process_segment->devices[process_devices[ordinal]];
}

struct context *context_check(CUcontext handle) {
    return object_check(&context_pool, handle);
}

CUresult context_state(const struct context *context) {
    if (!atomic_load_explicit(&context->object.live, memory_order_relaxed))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    int sticky = atomic_load_explicit(&context->sticky, memory_order_relaxed);
    if (sticky != 0) return (CUresult)sticky;
    const struct sim_device *device = &process_segment->devices[context->device];
    if (atomic_load_explicit(&device->lost, memory_order_relaxed) != 0)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return CUDA_SUCCESS;
}

void context_fail(struct context *context, CUresult error) {
    int none = 0;
    atomic_compare_exchange_strong(&context->sticky, &none, (int)error);
}

struct context *context_top(void) {
    return stack.depth == 0 ? NULL : stack.entries[stack.depth - 1];
}

CUresult context_current(struct context **context) {
    *context = context_top();
    if (*context != NULL) return context_state(*context);
    return calls_are_forbidden ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_push(struct context *context) {
    if (stack.depth == CONTEXT_STACK_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    stack.entries[stack.depth++] = context;
    return CUDA_SUCCESS;
}

struct context *context_pop(void) {
    return stack.depth == 0 ? NULL : stack.entries[--stack.depth];
}

void context_forbid_calls(void) {
    calls_are_forbidden = true;
}

bool context_calls_are_forbidden(void) {
    return calls_are_forbidden;
}
