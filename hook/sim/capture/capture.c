#define _GNU_SOURCE
#include "capture/capture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process/context.h"
#include "process/faults.h"
#include "process/process.h"
#include "sim_api.h"
#include "streams/event.h"
#include "streams/graph.h"
#include "streams/resolve.h"

/* A stream that takes part, and the nodes that its next one will depend on. */
struct member {
    struct member *next;
    struct stream *stream;
    struct graph_node **nodes;
    size_t node_count;
};

struct capture {
    struct capture *next;
    uint64_t id;
    CUstreamCaptureMode mode;
    const void *thread; /* which thread began it */
    struct stream *origin;
    bool is_own; /* the origin is the default stream of that thread, and the capture ends with it */
    struct graph *graph;
    bool graph_is_given; /* cuStreamBeginCaptureToGraph: it is the caller's */
    bool invalid;
    struct member *members;
};

/* Guards captures, members and each stream's `capture`. Taken before graphs_lock. */
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static _Atomic int capture_count; /* so that calls outside of any capture cost one load */
static uint64_t next_id = 1;

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static _Thread_local char thread_mark; /* its address names the thread */

static struct member *member_of(const struct capture *capture, const struct stream *stream) {
    struct member *member = capture->members;
    while (member != NULL && member->stream != stream)
        member = member->next;
    return member;
}

static bool set_nodes(struct member *member, struct graph_node *const *nodes, size_t count) {
    struct graph_node **copy = malloc((count + 1) * sizeof *copy);
    if (copy == NULL) return false;
    if (count > 0) memcpy(copy, nodes, count * sizeof *copy);
    free(member->nodes);
    member->nodes = copy;
    member->node_count = count;
    return true;
}

static bool add_nodes(struct member *member, struct graph_node *const *nodes, size_t count) {
    struct graph_node **grown =
        realloc(member->nodes, (member->node_count + count + 1) * sizeof *grown);
    if (grown == NULL) return false;
    member->nodes = grown;
    for (size_t i = 0; i < count; i++) {
        bool there = false;
        for (size_t j = 0; j < member->node_count; j++)
            there = there || grown[j] == nodes[i];
        if (!there) grown[member->node_count++] = nodes[i];
    }
    return true;
}

static struct member *add_member(struct capture *capture, struct stream *stream) {
    struct member *member = calloc(1, sizeof *member);
    if (member == NULL) return NULL;
    object_hold(stream);
    member->stream = stream;
    member->next = capture->members;
    capture->members = member;
    if (stream->blocking) atomic_fetch_add(&stream->context->captures, 1);
    atomic_store(&stream->capture, capture);
    return member;
}

static void remove_member(struct member **link) {
    struct member *member = *link;
    *link = member->next;
    if (member->stream->blocking) atomic_fetch_sub(&member->stream->context->captures, 1);
    atomic_store(&member->stream->capture, NULL);
    object_drop(&stream_pool, member->stream);
    free(member->nodes);
    free(member);
}

static void close_capture(struct capture *capture) {
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    while (capture->members != NULL)
        remove_member(&capture->members);
    atomic_fetch_sub(&capture_count, 1);
    free(capture);
}

static void abandon(struct capture *capture) {
    if (!capture->graph_is_given) {
        pthread_mutex_lock(&graphs_lock);
        graph_close(capture->graph);
        pthread_mutex_unlock(&graphs_lock);
    }
    close_capture(capture);
}

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void thread_ends(void *mark) {
    if (process_pid != (uint32_t)getpid()) return; /* locks and captures did not survive the fork */
    pthread_mutex_lock(&capture_lock);
    for (struct capture *capture = captures, *next; capture != NULL; capture = next) {
        next = capture->next;
        if (capture->is_own && capture->thread == mark) abandon(capture);
    }
    pthread_mutex_unlock(&capture_lock);
}

static void make_thread_key(void) {
    pthread_key_create(&thread_key, thread_ends);
}

static CUgraphNodeType type_of(enum op_kind kind) {
    switch (kind) {
        case OP_LAUNCH:
            return CU_GRAPH_NODE_TYPE_KERNEL;
        case OP_COPY:
            return CU_GRAPH_NODE_TYPE_MEMCPY;
        case OP_MEMSET:
            return CU_GRAPH_NODE_TYPE_MEMSET;
        case OP_HOST_FUNCTION:
            return CU_GRAPH_NODE_TYPE_HOST;
        case OP_GRAPH_ALLOC:
            return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        case OP_GRAPH_FREE:
            return CU_GRAPH_NODE_TYPE_MEM_FREE;
        case OP_WAIT_VALUE:
        case OP_WRITE_VALUE:
            return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        default:
            return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

CUresult capture_append(struct stream *stream, const struct op *op) {
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = atomic_load(&stream->capture);
    struct member *member = capture == NULL ? NULL : member_of(capture, stream);
    if (member != NULL && !capture->invalid) {
        pthread_mutex_lock(&graphs_lock);
        struct graph_node *node =
            graph_add(capture->graph, type_of(op->kind), op, member->nodes, member->node_count);
        pthread_mutex_unlock(&graphs_lock);
        result =
            node != NULL && set_nodes(member, &node, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult capture_record_event(struct stream *stream, struct event *event) {
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = atomic_load(&stream->capture);
    struct member *member = capture == NULL ? NULL : member_of(capture, stream);
    if (member != NULL && !capture->invalid)
        result = event_note_capture(event, capture->id, member->nodes, member->node_count);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static struct capture *capture_by_id(uint64_t id) {
    struct capture *capture = captures;
    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

/* Call with capture_lock held. */
static CUresult join(struct stream *stream, const struct event *event) {
    struct capture *capture = capture_by_id(event->capture_id);
    struct capture *own = atomic_load(&stream->capture);
    if (capture == NULL) return CUDA_ERROR_CAPTURED_EVENT;
    if (own != NULL && own != capture) {
        own->invalid = true;
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->legacy) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    struct member *member = own != NULL ? member_of(capture, stream) : add_member(capture, stream);
    bool added = member != NULL && add_nodes(member, event->captured, event->captured_count);
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_join(struct stream *stream, struct event *event) {
    pthread_mutex_lock(&capture_lock);
    pthread_mutex_lock(&event->lock);
    CUresult result = join(stream, event);
    pthread_mutex_unlock(&event->lock);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static bool forbidden_to_this_thread(const struct capture *capture) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    if (capture->thread == &thread_mark) return true;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_forbid_unsafe(void) {
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        if (!forbidden_to_this_thread(capture)) continue;
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

/* Ends the captures with a member in this context. `blocking_only`: those that the legacy stream
 * would have to wait for. */
static CUresult invalidate_in(const struct context *context, bool blocking_only, CUresult error) {
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        for (const struct member *m = capture->members; m != NULL; m = m->next) {
            if (m->stream->context != context || (blocking_only && !m->stream->blocking)) continue;
            capture->invalid = true;
            result = error;
        }
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult capture_forbid_implicit(struct context *context) {
    return invalidate_in(context, true, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult capture_forbid_synchronise(struct context *context) {
    return invalidate_in(context, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static CUresult invalidate(struct stream *stream, CUresult error) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = atomic_load(&stream->capture);
    if (capture != NULL) {
        capture->invalid = true;
        result = error;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult capture_forbid_stream_query(struct stream *stream) {
    if (capture_is_under_way(stream))
        return invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return stream->legacy ? capture_forbid_implicit(stream->context) : CUDA_SUCCESS;
}

CUresult capture_forbid_synchronous_copy(struct stream *stream) {
    CUresult result = capture_forbid_stream_query(stream);
    return result != CUDA_SUCCESS ? result : capture_forbid_unsafe();
}

CUresult capture_forbid_allocation(struct stream *stream) {
    return invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult capture_forbid_outside_event(struct stream *stream) {
    return invalidate(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

CUresult capture_forbid_event_query(const struct event *event) {
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = capture_by_id(event->capture_id);
    if (capture != NULL) capture->invalid = true;
    pthread_mutex_unlock(&capture_lock);
    return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_abandon(struct stream *stream) {
    if (!capture_is_under_way(stream)) return;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = atomic_load(&stream->capture);
    if (capture != NULL && capture->origin == stream) {
        abandon(capture);
    } else if (capture != NULL) {
        capture->invalid = true;
        struct member **link = &capture->members;
        while (*link != NULL && (*link)->stream != stream)
            link = &(*link)->next;
        if (*link != NULL) remove_member(link);
    }
    pthread_mutex_unlock(&capture_lock);
}

/* Call with capture_lock held. */
static CUresult begin(CUstream handle, struct stream *stream, struct graph *given,
                      CUstreamCaptureMode mode, struct capture **begun) {
    if (atomic_load(&stream->capture) != NULL) return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&graphs_lock);
    capture->graph = given != NULL ? given : graph_open();
    pthread_mutex_unlock(&graphs_lock);
    capture->graph_is_given = given != NULL;
    capture->id = next_id++;
    capture->mode = mode;
    capture->thread = &thread_mark;
    capture->origin = stream;
    capture->is_own = handle == NULL || handle == CU_STREAM_PER_THREAD;
    if (capture->is_own) {
        pthread_once(&thread_key_once, make_thread_key);
        pthread_setspecific(thread_key, capture->thread);
    }
    if (capture->graph == NULL || add_member(capture, stream) == NULL) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->next = captures;
    captures = capture;
    atomic_fetch_add(&capture_count, 1);
    *begun = capture;
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    struct stream *stream = NULL;
    struct capture *capture = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&capture_lock);
    result = begin(hStream, stream, NULL, mode, &capture);
    pthread_mutex_unlock(&capture_lock);
    const int fault = faults_check("cuStreamBeginCapture.done");
    return fault != 0 ? (CUresult)fault : result;
}

CUresult sim_cuStreamBeginCapture(CUstream hStream) {
    return sim_cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                         const CUgraphNode *dependencies,
                                         const CUgraphEdgeData *dependencyData,
                                         size_t numDependencies, CUstreamCaptureMode mode) {
    struct stream *stream = NULL;
    struct capture *capture = NULL;
    (void)dependencyData;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct graph *graph = graph_check(hGraph);
    if (graph == NULL || (numDependencies > 0 && dependencies == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&capture_lock);
    result = begin(hStream, stream, graph, mode, &capture);
    if (result == CUDA_SUCCESS) {
        struct graph_node *const *nodes = (struct graph_node *const *)dependencies;
        if (!add_nodes(capture->members, nodes, numDependencies)) capture->invalid = true;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static void mark_ancestors(struct graph_node *node) {
    if (node->mark == 1) return;
    node->mark = 1;
    for (size_t i = 0; i < node->dependency_count; i++)
        mark_ancestors(node->dependencies[i]);
}

/* True when everything that other streams captured leads back to the origin. */
static bool all_joined(const struct capture *capture) {
    for (size_t i = 0; i < capture->graph->node_count; i++)
        capture->graph->nodes[i]->mark = 0;
    const struct member *origin = member_of(capture, capture->origin);
    for (size_t i = 0; i < origin->node_count; i++)
        mark_ancestors(origin->nodes[i]);
    for (const struct member *m = capture->members; m != NULL; m = m->next) {
        for (size_t i = 0; i < m->node_count; i++) {
            if (m->nodes[i]->mark == 0) return false;
        }
    }
    return true;
}

CUresult sim_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = atomic_load(&stream->capture);
    if (capture == NULL) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture->origin != stream) {
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else { /* whoever ends it, and whatever that answers, it is over */
        pthread_mutex_lock(&graphs_lock);
        if (capture->invalid) {
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        } else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                   capture->thread != &thread_mark) {
            result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        } else if (!all_joined(capture)) {
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
        if (phGraph != NULL) *phGraph = result == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL;
        if (result != CUDA_SUCCESS && !capture->graph_is_given) graph_close(capture->graph);
        pthread_mutex_unlock(&graphs_lock);
        close_capture(capture);
    }
    pthread_mutex_unlock(&capture_lock);
    const int fault = faults_check("cuStreamEndCapture.done");
    return fault != 0 ? (CUresult)fault : result;
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                       cuuint64_t *id_out, CUgraph *graph_out,
                                       const CUgraphNode **dependencies_out,
                                       const CUgraphEdgeData **edgeData_out,
                                       size_t *numDependencies_out) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (captureStatus_out == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy && atomic_load(&stream->context->captures) > 0)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    pthread_mutex_lock(&capture_lock);
    const struct capture *capture = atomic_load(&stream->capture);
    *captureStatus_out = capture == NULL    ? CU_STREAM_CAPTURE_STATUS_NONE
                         : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capture != NULL && !capture->invalid) {
        const struct member *member = member_of(capture, stream);
        if (id_out != NULL) *id_out = capture->id;
        if (graph_out != NULL) *graph_out = (CUgraph)capture->graph;
        if (dependencies_out != NULL) *dependencies_out = (const CUgraphNode *)member->nodes;
        if (edgeData_out != NULL) *edgeData_out = NULL;
        if (numDependencies_out != NULL) *numDependencies_out = member->node_count;
    }
    pthread_mutex_unlock(&capture_lock);
    return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                       cuuint64_t *id_out, CUgraph *graph_out,
                                       const CUgraphNode **dependencies_out,
                                       size_t *numDependencies_out) {
    return sim_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                         dependencies_out, NULL, numDependencies_out);
}

CUresult sim_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                    cuuint64_t *id_out) {
    return sim_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL,
                                         NULL);
}

CUresult sim_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    return sim_cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult sim_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                                  const CUgraphEdgeData *dependencyData,
                                                  size_t numDependencies, unsigned int flags) {
    struct stream *stream = NULL;
    (void)dependencyData;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (flags > 1 || (numDependencies > 0 && dependencies == NULL)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&capture_lock);
    struct capture *capture = atomic_load(&stream->capture);
    if (capture == NULL) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else {
        struct member *member = member_of(capture, stream);
        struct graph_node *const *nodes = (struct graph_node *const *)dependencies;
        bool done = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
                        ? set_nodes(member, nodes, numDependencies)
                        : add_nodes(member, nodes, numDependencies);
        if (!done) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult sim_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                               size_t numDependencies, unsigned int flags) {
    return sim_cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies,
                                                    flags);
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
