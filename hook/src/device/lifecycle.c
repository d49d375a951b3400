#include "device/lifecycle.h"

#include <stdatomic.h>
#include <string.h>

#include "agent/memory_query.h"
#include "base/bell.h"
#include "base/driver.h"
#include "base/options.h"
#include "device/devices.h"
#include "device/failure.h"
#include "device/runtime.h"
#include "device/streams.h"
#include "gate/threads.h"

bool lifecycle_enabled(void) {
    const struct options *options = options_get();
    return !options->disabled && options->socket_path[0] && options->token[0];
}

void lifecycle_cuda_opened(void) {
    if (lifecycle_enabled()) bell_start_agent("cuInit");
}

void lifecycle_context_opened(void *context, int device_ordinal) {
    if (!lifecycle_enabled()) return;
    if (!streams_context_opened(context, device_ordinal)) return;
    if (!devices_opened(device_ordinal)) return;
    bell_start_agent("a context");
    /* A turn that is held does not cover this device: the gate is shut before we return. */
    bell_ring_and_wait(NEWS_DEVICE_OPENED);
}

bool lifecycle_context_closing(void *context, int device_ordinal) {
    (void)device_ordinal;
    return lifecycle_enabled() && streams_context_closing(context);
}

void lifecycle_context_closed(int device_ordinal) {
    if (streams_context_closed(device_ordinal)) devices_closed(device_ordinal);
    bell_ring(NEWS_DEVICE_CLOSED);
}

void lifecycle_context_switches(void) {
    struct thread_record *self = (struct thread_record *)(void *)gate_self;
    if (self) self->current_context = NULL;
}

bool runtime_know_current_context(void) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    if (cuda == NULL || cuda->context_get_current(&context) != CUDA_SUCCESS || context == NULL)
        return false;
    if (streams_context_number(context) != 0) return true;
    CUdevice ordinal;
    if (cuda->context_get_device(&ordinal) != CUDA_SUCCESS) return false;
    lifecycle_context_opened(context, ordinal);
    return true;
}

/* The context of a stream need not be the current one: streams of green contexts are made without
 * any. */
static bool know_context(const struct driver *cuda, CUcontext context) {
    if (streams_context_number(context) != 0) return true;
    CUdevice ordinal;
    CUcontext popped;
    if (cuda->context_push(context) != CUDA_SUCCESS) return false;
    bool found = cuda->context_get_device(&ordinal) == CUDA_SUCCESS;
    cuda->context_pop(&popped);
    if (found) lifecycle_context_opened(context, ordinal);
    return found;
}

void lifecycle_stream_opened(void *stream, unsigned int flags) {
    (void)flags;
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    if (!lifecycle_enabled() || cuda == NULL) return;
    if (cuda->stream_get_context(stream, &context) == CUDA_SUCCESS && know_context(cuda, context))
        streams_opened(stream, context);
}

void lifecycle_stream_closing(void *stream) {
    if (lifecycle_enabled()) streams_closing(stream);
}

void lifecycle_capture_began(void *stream) {
    if (lifecycle_enabled()) streams_capture_beginning(stream);
}

void lifecycle_capture_ended(void *stream) {
    if (lifecycle_enabled()) streams_capture_ended(stream);
}

void lifecycle_synchronise_began(void) {
    if (!lifecycle_enabled()) return;
    struct thread_record *self = threads_self();
    if (self) atomic_store(&self->synchronises, atomic_load(&self->synchronises) | 1);
}

void lifecycle_synchronise_ended(int cu_result) {
    if (!lifecycle_enabled()) return;
    struct thread_record *self = threads_self();
    if (self) atomic_store(&self->synchronises, (atomic_load(&self->synchronises) | 1) + 1);
    if (cu_result != 0) failure_look(cu_result);
}

void lifecycle_memory_changed(int device_ordinal, uint64_t bytes_allocated, uint64_t bytes_fixed) {
    if (devices_memory_changed(device_ordinal, bytes_allocated, bytes_fixed))
        bell_ring(NEWS_MEMORY_CHANGED);
}

void lifecycle_memory_limit(int device_ordinal, uint64_t *cap_bytes, uint64_t *others_bytes) {
    devices_limit(device_ordinal, cap_bytes, others_bytes);
}

void lifecycle_learn_memory_limit(int device_ordinal) {
    uint8_t uuid[16];
    struct memory_answer answer = {0};
    if (!lifecycle_enabled() || !devices_limit_unknown(device_ordinal, uuid)) return;
    if (memory_query(uuid, &answer))
        devices_limit_answered(device_ordinal, answer.bytes_total, answer.bytes_used);
}

bool lifecycle_ask_memory(const uint8_t device_uuid[16], struct memory_answer *answer) {
    return lifecycle_enabled() && memory_query(device_uuid, answer);
}
