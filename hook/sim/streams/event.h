/* Events: a place in a stream, and the time at which it was reached. */
#ifndef GPUSHARE_SIM_EVENT_H
#define GPUSHARE_SIM_EVENT_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/objects.h"

struct capture;
struct context;
struct graph_node;
struct stream;

struct event {
    struct object object;
    struct context *context;
    unsigned flags;
    pthread_mutex_t lock;  /* guards the rest */
    struct stream *stream; /* a reference: where it was last recorded; NULL: never */
    uint64_t sequence;     /* its place there */
    uint64_t reached_ns;   /* when that place was reached; 0: not yet */
    uint64_t capture_id;   /* last recorded while capturing: the capture; 0: not so */
    size_t captured_count; /* the nodes that it stands for in that capture */
    struct graph_node **captured;
};

#pragma GCC visibility push(hidden)

extern struct object_pool event_pool;

/* The event is recorded at this place of this stream; called with the stream's lock held. */
void event_note_record(struct event *event, struct stream *stream, uint64_t sequence);

/* The executor came to that place. */
void event_note_reached(struct event *event, uint64_t sequence, uint64_t now_ns);

/* The event stands for these nodes of a capture. */
CUresult event_note_capture(struct event *event, uint64_t capture_id, struct graph_node **nodes,
                            size_t count);

struct event *event_check(CUevent handle);

/* The place where it was last recorded, with a reference to the stream; NULL when never. */
struct stream *event_place(struct event *event, uint64_t *sequence);

/* Its last record was captured. */
bool event_is_captured(struct event *event);

#pragma GCC visibility pop
#endif
