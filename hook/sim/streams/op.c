#define _GNU_SOURCE
#include "streams/op.h"

#include <stdlib.h>

#include "memory/graph_memory.h"
#include "memory/pool.h"
#include "streams/event.h"
#include "streams/graph.h"
#include "streams/stream.h"

void op_hold(const struct op *op) {
    if (op->kind == OP_EVENT_RECORD) object_hold(op->record.event);
    if (op->kind == OP_GRAPH_ALLOC || op->kind == OP_GRAPH_FREE) graph_memory_hold(op->memory);
}

/* A launch is over: what it allocated is not in use by it any more. The last comes first: the next
 * launch claims the first one first, and must not take for it what the last one still has. */
static void release_launch(struct graph_plan *plan) {
    for (size_t i = plan->count; i > 0; i--) {
        const struct op *op = &plan->ops[i - 1];
        if (op->kind == OP_GRAPH_ALLOC) graph_memory_launch_over(op->memory);
    }
    graph_plan_drop(plan);
}

void op_release(const struct op *op) {
    switch (op->kind) {
        case OP_COPY:
            if (op->copy.source_is_staged) free((void *)(uintptr_t)op->copy.source);
            break;
        case OP_EVENT_RECORD:
            object_drop(&event_pool, op->record.event);
            break;
        case OP_STREAM_WAIT:
            object_drop(&stream_pool, op->wait.stream);
            break;
        case OP_GRAPH_ALLOC:
        case OP_GRAPH_FREE:
            graph_memory_drop(op->memory);
            break;
        case OP_FREE:
            object_drop(&pool_pool, op->free.pool);
            break;
        case OP_GRAPH:
            release_launch(op->plan);
            break;
        default:
            break;
    }
}
