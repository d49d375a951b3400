#define _GNU_SOURCE
#include "streams/op.h"

#include <stdlib.h>

#include "memory/pool.h"
#include "streams/event.h"
#include "streams/graph.h"
#include "streams/stream.h"

void op_hold(const struct op *op) {
    if (op->kind == OP_EVENT_RECORD) object_hold(op->record.event);
    if (op->kind == OP_GRAPH_ALLOC) pool_memory_hold(op->memory);
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
            pool_memory_drop(op->memory);
            break;
        case OP_GRAPH:
            graph_plan_drop(op->plan);
            break;
        default:
            break;
    }
}
