/* cuGraphLaunch, and the memory that a graph allocates and frees when it is launched. */
#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/graph_memory.h"
#include "sim_api.h"
#include "streams/graph.h"
#include "streams/resolve.h"

static bool has_op(const struct graph_plan *plan, enum op_kind kind,
                   const struct graph_memory *memory) {
    const struct op *op;
    for (uint64_t i = 0; (op = graph_plan_op(plan, i)) != NULL; i++)
        if (op->kind == kind && op->memory == memory) return true;
    return false;
}

/* Each launch of such a graph frees what the last one has left. */
static void free_what_is_left(struct stream *stream, struct graph_memory *memory) {
    if (!graph_memory_claim_free(memory)) return;
    struct op op = {.kind = OP_GRAPH_FREE, .memory = memory};
    graph_memory_hold(memory);
    if (submit(stream, &op, NULL) != CUDA_SUCCESS) graph_memory_drop(memory);
}

static CUresult claim_one(struct stream *stream, const struct graph_plan *plan, const struct op *op,
                          bool auto_free) {
    if (op->kind == OP_GRAPH_FREE) {
        bool own = has_op(plan, OP_GRAPH_ALLOC, op->memory);
        return own || graph_memory_claim_free(op->memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (op->kind != OP_GRAPH_ALLOC) return CUDA_SUCCESS;
    if (auto_free) free_what_is_left(stream, op->memory);
    return graph_memory_launch(op->memory, has_op(plan, OP_GRAPH_FREE, op->memory));
}

/* The launch does not come: the first ops of its plan have claimed their memory for nothing. */
static void give_memory_back(const struct graph_plan *plan, uint64_t ops) {
    for (uint64_t i = 0; i < ops; i++) {
        const struct op *op = graph_plan_op(plan, i);
        if (op->kind != OP_GRAPH_ALLOC) continue;
        graph_memory_claim_free(op->memory);
        graph_memory_launch_over(op->memory);
    }
}

/* All memory of the launch, or none. */
static CUresult claim_memory(struct stream *stream, const struct graph_plan *plan, bool auto_free) {
    CUresult result = CUDA_SUCCESS;
    const struct op *op;
    uint64_t i = 0;
    while (result == CUDA_SUCCESS && (op = graph_plan_op(plan, i)) != NULL) {
        result = claim_one(stream, plan, op, auto_free);
        i++;
    }
    if (result != CUDA_SUCCESS) give_memory_back(plan, i - 1);
    return result;
}

CUresult sim_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (capture_is_under_way(stream)) return capture_forbid_allocation(stream);
    struct op op = {.kind = OP_GRAPH};
    bool auto_free = false;
    pthread_mutex_lock(&graphs_lock);
    struct graph_exec *exec = graph_exec_check(hGraph);
    if (exec != NULL) {
        op.plan = exec->plan;
        auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
        graph_plan_hold(op.plan);
    }
    pthread_mutex_unlock(&graphs_lock);
    if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
    result = claim_memory(stream, op.plan, auto_free);
    if (result == CUDA_SUCCESS) {
        result = submit(stream, &op, NULL);
        if (result != CUDA_SUCCESS) give_memory_back(op.plan, op.plan->count);
    }
    if (result != CUDA_SUCCESS) graph_plan_drop(op.plan);
    return result;
}
