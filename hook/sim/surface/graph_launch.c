/* cuGraphLaunch, and the memory that a graph allocates and frees when it is launched. */
#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/graph_memory.h"
#include "sim_api.h"
#include "streams/graph.h"
#include "streams/resolve.h"
#include "streams/stream.h"

/* Held from a launch's first claim of memory until its place is known: the next one may have to
 * wait for that place. Taken before all other locks. */
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;

struct launch {
    struct stream *stream;
    struct graph_plan *plan;  /* a reference */
    struct pool_order before; /* the same graph's last launch */
    bool auto_free;
};

static bool has_op(const struct graph_plan *plan, enum op_kind kind,
                   const struct graph_memory *memory) {
    const struct op *op;
    for (uint64_t i = 0; (op = graph_plan_op(plan, i)) != NULL; i++)
        if (op->kind == kind && (memory == NULL || op->memory == memory)) return true;
    return false;
}

/* What the stream does from now on comes after that place. */
static CUresult wait_for(struct stream *stream, const struct pool_order *place) {
    if (place->sequence == 0 || place->stream_id == stream->id) return CUDA_SUCCESS;
    struct stream *other = stream_by_id(place->stream_id);
    if (other == NULL) return CUDA_SUCCESS;
    struct op op = {.kind = OP_STREAM_WAIT, .wait = {.stream = other, .sequence = place->sequence}};
    CUresult result = CUDA_SUCCESS;
    const bool over = stream_is_done(other, place->sequence);
    if (!over) result = submit(stream, &op, NULL);
    if (over || result != CUDA_SUCCESS) object_drop(&stream_pool, other);
    return result;
}

/* Each launch of such a graph frees what the last one has left. */
static void free_what_is_left(struct stream *stream, struct graph_memory *memory) {
    if (!graph_memory_claim_free(memory)) return;
    struct op op = {.kind = OP_GRAPH_FREE, .memory = memory};
    graph_memory_hold(memory);
    if (submit(stream, &op, NULL) == CUDA_SUCCESS) return;
    graph_memory_keep(memory);
    graph_memory_drop(memory);
}

static CUresult claim_allocation(const struct launch *launch, struct graph_memory *memory,
                                 uint64_t id) {
    if (launch->auto_free) free_what_is_left(launch->stream, memory);
    const struct graph_launch claim = {.id = id, .stream_id = launch->stream->id};
    const bool freed = has_op(launch->plan, OP_GRAPH_FREE, memory);
    struct pool_order before;
    CUresult result = graph_memory_launch(memory, &claim, freed, &before);
    if (result != CUDA_SUCCESS) return result;
    result = wait_for(launch->stream, &before);
    if (result != CUDA_SUCCESS) graph_memory_undo_launch(memory);
    return result;
}

/* What the plan itself allocates needs no claim. */
static bool frees_what_others_left(const struct graph_plan *plan, const struct op *op) {
    return op->kind == OP_GRAPH_FREE && !has_op(plan, OP_GRAPH_ALLOC, op->memory);
}

static CUresult claim_one(const struct launch *launch, const struct op *op, uint64_t id) {
    if (op->kind == OP_GRAPH_ALLOC) return claim_allocation(launch, op->memory, id);
    if (!frees_what_others_left(launch->plan, op)) return CUDA_SUCCESS;
    return graph_memory_claim_free(op->memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The launch does not come: the first ops of its plan have claimed their memory for nothing. */
static void give_memory_back(const struct graph_plan *plan, uint64_t ops) {
    for (uint64_t i = 0; i < ops; i++) {
        const struct op *op = graph_plan_op(plan, i);
        if (op->kind == OP_GRAPH_ALLOC) graph_memory_undo_launch(op->memory);
        if (frees_what_others_left(plan, op)) graph_memory_keep(op->memory);
    }
}

/* All memory of the launch, or none. */
static CUresult claim_memory(const struct launch *launch) {
    static _Atomic uint64_t next_id = 1;
    const uint64_t id = atomic_fetch_add(&next_id, 1);
    CUresult result = CUDA_SUCCESS;
    const struct op *op;
    uint64_t i = 0;
    while (result == CUDA_SUCCESS && (op = graph_plan_op(launch->plan, i)) != NULL) {
        result = claim_one(launch, op, id);
        i++;
    }
    if (result != CUDA_SUCCESS) give_memory_back(launch->plan, i - 1);
    return result;
}

static void note_place(const struct graph_plan *plan, const struct pool_order *place) {
    const struct op *op;
    for (uint64_t i = 0; (op = graph_plan_op(plan, i)) != NULL; i++)
        if (op->kind == OP_GRAPH_ALLOC) graph_memory_place_launch(op->memory, place);
}

/* The graph's launches run one after the other, in whatever streams they are. */
static CUresult perform(const struct launch *launch, struct pool_order *place) {
    struct op op = {.kind = OP_GRAPH, .plan = launch->plan};
    CUresult result = wait_for(launch->stream, &launch->before);
    if (result == CUDA_SUCCESS) result = claim_memory(launch);
    if (result != CUDA_SUCCESS) return result;
    graph_plan_hold(launch->plan); /* the work's */
    *place = (struct pool_order){.stream_id = launch->stream->id};
    result = submit(launch->stream, &op, &place->sequence);
    if (result == CUDA_SUCCESS) {
        note_place(launch->plan, place);
    } else {
        give_memory_back(launch->plan, launch->plan->count);
        graph_plan_drop(launch->plan);
    }
    return result;
}

/* False: no such graph. */
static bool look_up(CUgraphExec handle, struct launch *launch) {
    pthread_mutex_lock(&graphs_lock);
    struct graph_exec *exec = graph_exec_check(handle);
    if (exec != NULL) {
        launch->plan = exec->plan;
        launch->before = exec->launched;
        launch->auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
        graph_plan_hold(launch->plan);
    }
    pthread_mutex_unlock(&graphs_lock);
    return exec != NULL;
}

static void note_launch(CUgraphExec handle, const struct pool_order *place) {
    pthread_mutex_lock(&graphs_lock);
    struct graph_exec *exec = graph_exec_check(handle);
    if (exec != NULL) exec->launched = *place;
    pthread_mutex_unlock(&graphs_lock);
}

CUresult sim_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    struct launch launch = {0};
    struct pool_order place;
    CUresult result = stream_resolve(hStream, &launch.stream);
    if (result != CUDA_SUCCESS) return result;
    if (capture_is_under_way(launch.stream)) return capture_forbid_allocation(launch.stream);
    if (!look_up(hGraph, &launch)) return CUDA_ERROR_INVALID_VALUE;
    const bool allocates = has_op(launch.plan, OP_GRAPH_ALLOC, NULL);
    if (allocates) pthread_mutex_lock(&launch_lock);
    result = perform(&launch, &place);
    if (allocates) pthread_mutex_unlock(&launch_lock);
    if (result == CUDA_SUCCESS) note_launch(hGraph, &place);
    graph_plan_drop(launch.plan);
    return result;
}
