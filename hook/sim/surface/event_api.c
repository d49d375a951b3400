/* cuEvent* and cuStreamWaitEvent. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "capture/capture.h"
#include "capture/submit.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/event.h"
#include "streams/resolve.h"
#include "streams/stream.h"

CUresult sim_cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (phEvent == NULL || (Flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) != 0)
        return (Flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                      : CUDA_ERROR_INVALID_VALUE;
    struct event *event = object_take(&event_pool);
    if (event == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = Flags;
    pthread_mutex_init(&event->lock, NULL);
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy_v2(CUevent hEvent) {
    struct event *event = event_check(hEvent);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    object_leave_to_kill(event);
    atomic_store(&event->object.live, 0);
    pthread_mutex_lock(&event->lock);
    struct stream *stream = event->stream;
    event->stream = NULL;
    free(event->captured);
    event->captured = NULL;
    event->captured_count = 0;
    pthread_mutex_unlock(&event->lock);
    if (stream != NULL) object_drop(&stream_pool, stream);
    object_drop(&event_pool, event);
    return CUDA_SUCCESS;
}

CUresult sim_cuEventRecord(CUevent hEvent, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct event *event = event_check(hEvent);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (capture_is_under_way(stream)) return capture_record_event(stream, event);
    struct op op = {.kind = OP_EVENT_RECORD, .record = {.event = event}};
    object_hold(event);
    result = submit(stream, &op, NULL);
    if (result != CUDA_SUCCESS) object_drop(&event_pool, event);
    return result;
}

CUresult sim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_cuEventRecord(hEvent, hStream);
}

CUresult sim_cuEventQuery(CUevent hEvent) {
    struct event *event = event_check(hEvent);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = context_state(event->context);
    if (result != CUDA_SUCCESS) return result;
    if (event_is_captured(event)) return capture_forbid_event_query(event);
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS) return result;
    uint64_t sequence = 0;
    struct stream *stream = event_place(event, &sequence);
    if (stream == NULL) return CUDA_SUCCESS;
    bool done = stream_is_done(stream, sequence);
    object_drop(&stream_pool, stream);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_cuEventSynchronize(CUevent hEvent) {
    struct event *event = event_check(hEvent);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = context_state(event->context);
    if (result != CUDA_SUCCESS) return result;
    if (event_is_captured(event)) return capture_forbid_event_query(event);
    result = capture_forbid_unsafe();
    if (result != CUDA_SUCCESS) return result;
    uint64_t sequence = 0;
    struct stream *stream = event_place(event, &sequence);
    if (stream == NULL) return CUDA_SUCCESS;
    stream_wait(stream, sequence);
    stream_note_synchronised(stream, sequence);
    object_drop(&stream_pool, stream);
    return context_state(event->context);
}

static CUresult reached(struct event *event, uint64_t *reached_ns) {
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = context_state(event->context);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&event->lock);
    *reached_ns = event->reached_ns;
    bool recorded = event->stream != NULL;
    pthread_mutex_unlock(&event->lock);
    if (!recorded) return CUDA_ERROR_INVALID_HANDLE;
    return *reached_ns == 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult sim_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    struct event *start = event_check(hStart);
    struct event *end = event_check(hEnd);
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
    if (start == NULL || end == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (pMilliseconds == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = reached(start, &from_ns);
    CUresult second = reached(end, &to_ns);
    if (result == CUDA_SUCCESS || second == CUDA_ERROR_INVALID_HANDLE) result = second;
    if (result != CUDA_SUCCESS) return result;
    *pMilliseconds = (float)((double)(int64_t)(to_ns - from_ns) / 1e6);
    return CUDA_SUCCESS;
}

/* A wait for an event that was never recorded is over at once. */
CUresult sim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct event *event = event_check(hEvent);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (Flags != CU_EVENT_WAIT_DEFAULT && Flags != CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event_is_captured(event)) return capture_join(stream, event);
    if (capture_is_under_way(stream)) return capture_forbid_outside_event(stream);
    uint64_t sequence = 0;
    struct stream *awaited = event_place(event, &sequence);
    if (awaited == NULL) return CUDA_SUCCESS;
    struct op op = {.kind = OP_STREAM_WAIT, .wait = {.stream = awaited, .sequence = sequence}};
    result = submit(stream, &op, NULL);
    if (result != CUDA_SUCCESS) object_drop(&stream_pool, awaited);
    return result;
}
