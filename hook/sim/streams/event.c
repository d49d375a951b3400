#define _GNU_SOURCE
#include "streams/event.h"

#include <stdlib.h>
#include <string.h>

#include "streams/stream.h"

struct object_pool event_pool = OBJECT_POOL(struct event, 1 << 20);

struct event *event_check(CUevent handle) {
    return object_check(&event_pool, handle);
}

void event_note_record(struct event *event, struct stream *stream, uint64_t sequence) {
    pthread_mutex_lock(&event->lock);
    struct stream *before = event->stream;
    if (before != stream) object_hold(stream);
    event->stream = stream;
    event->sequence = sequence;
    event->reached_ns = 0;
    event->capture_id = 0;
    pthread_mutex_unlock(&event->lock);
    if (before != NULL && before != stream) object_drop(&stream_pool, before);
}

void event_note_reached(struct event *event, uint64_t sequence, uint64_t now_ns) {
    pthread_mutex_lock(&event->lock);
    if (event->sequence == sequence || sequence == 0) event->reached_ns = now_ns;
    pthread_mutex_unlock(&event->lock);
}

CUresult event_note_capture(struct event *event, uint64_t capture_id, struct graph_node **nodes,
                            size_t count) {
    struct graph_node **copy = malloc((count + 1) * sizeof *copy);
    if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    if (count > 0) memcpy(copy, nodes, count * sizeof *copy);
    pthread_mutex_lock(&event->lock);
    free(event->captured);
    event->captured = copy;
    event->captured_count = count;
    event->capture_id = capture_id;
    pthread_mutex_unlock(&event->lock);
    return CUDA_SUCCESS;
}

struct stream *event_place(struct event *event, uint64_t *sequence) {
    pthread_mutex_lock(&event->lock);
    struct stream *stream = event->stream;
    if (stream != NULL) object_hold(stream);
    *sequence = event->sequence;
    pthread_mutex_unlock(&event->lock);
    return stream;
}

bool event_is_captured(struct event *event) {
    pthread_mutex_lock(&event->lock);
    bool captured = event->capture_id != 0;
    pthread_mutex_unlock(&event->lock);
    return captured;
}
