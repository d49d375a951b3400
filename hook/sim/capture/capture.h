/* Stream capture: work becomes nodes of a graph instead of being performed. */
#ifndef GPUSHARE_SIM_CAPTURE_H
#define GPUSHARE_SIM_CAPTURE_H

#include <cuda.h>
#include <stdbool.h>

#include "streams/op.h"
#include "streams/stream.h"

struct context;
struct event;

#pragma GCC visibility push(hidden)

static inline bool capture_is_under_way(const struct stream *stream) {
    return atomic_load_explicit(&stream->capture, memory_order_acquire) != NULL;
}

/* Adds the op to the graph that the stream captures. */
CUresult capture_append(struct stream *stream, const struct op *op);

/* The event stands for what the stream has captured so far. */
CUresult capture_record_event(struct stream *stream, struct event *event);

/* The stream waits for an event that was recorded in a capture: it joins that capture. */
CUresult capture_join(struct stream *stream, struct event *event);

/* The calls that end a capture by being made; each returns what such a call answers, or
 * CUDA_SUCCESS when no capture forbids it. */
CUresult capture_forbid_unsafe(void);
CUresult capture_forbid_implicit(struct context *context);
CUresult capture_forbid_synchronise(struct context *context);
CUresult capture_forbid_stream_query(struct stream *stream);
CUresult capture_forbid_synchronous_copy(struct stream *stream);
CUresult capture_forbid_allocation(struct stream *stream);
CUresult capture_forbid_outside_event(struct stream *stream);
CUresult capture_forbid_event_query(const struct event *event);

/* A stream that captures is being destroyed. */
void capture_abandon(struct stream *stream);

#pragma GCC visibility pop
#endif
