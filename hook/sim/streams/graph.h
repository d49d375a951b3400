/* Graphs: nodes with dependencies, and plans, the frozen order in which their ops are performed. */
#ifndef GPUSHARE_SIM_GRAPH_H
#define GPUSHARE_SIM_GRAPH_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "memory/region.h"
#include "process/objects.h"
#include "streams/op.h"

struct graph;

struct graph_node {
    struct object object;
    struct graph *graph;
    CUgraphNodeType type;
    struct op op;
    struct graph *child; /* of a child graph node: its own copy */
    struct graph_node **dependencies;
    size_t dependency_count;
    const void *function;      /* of a kernel node, as it was given */
    struct launch_shape shape; /* of a kernel node */
    size_t mark;               /* scratch of whoever walks the graph under graphs_lock */
};

struct graph {
    struct object object;
    struct graph_node **nodes; /* in the order in which they were added */
    size_t node_count;
    struct graph_exec *instance; /* of a graph that owns memory: it has one at a time */
};

/* Immutable once made, so that an update does not touch launches that are queued. */
struct graph_plan {
    _Atomic unsigned references;
    size_t count;
    struct graph_node **sources; /* which node each op came from; compared, never followed */
    struct op ops[];
};

struct graph_exec {
    struct object object;
    struct graph_plan *plan;    /* guarded by graphs_lock */
    struct pool_order launched; /* the last launch; guarded by it, too */
    struct graph *owner;        /* of whose memory this is the only instance; NULL: of none */
    cuuint64_t flags;
};

#pragma GCC visibility push(hidden)

extern pthread_mutex_t graphs_lock; /* guards all graphs, nodes and execs */

/* Call with graphs_lock held. */
struct graph *graph_open(void);
void graph_close(struct graph *graph);
struct graph *graph_check(CUgraph handle);
struct graph_node *graph_node_check(CUgraphNode handle);
struct graph_exec *graph_exec_check(CUgraphExec handle);
struct graph_exec *graph_exec_open(struct graph_plan *plan, cuuint64_t flags);
void graph_exec_close(struct graph_exec *exec);
struct graph_node *graph_add(struct graph *graph, CUgraphNodeType type, const struct op *op,
                             struct graph_node *const *dependencies, size_t count);
bool graph_add_dependency(struct graph_node *node, struct graph_node *dependency);
struct graph *graph_copy(const struct graph *graph);
/* It allocates, or frees what a graph has allocated. */
bool graph_owns_memory(const struct graph *graph);
void graph_node_close(struct graph_node *node);

/* Takes the node out of its graph and out of the others' dependencies. */
void graph_remove(struct graph_node *node);

/* The ops in an order that respects the dependencies. NULL: a cycle, or out of memory. */
struct graph_plan *graph_plan_make(struct graph *graph);

void graph_plan_hold(struct graph_plan *plan);
void graph_plan_drop(struct graph_plan *plan);

/* The op at a place of the plan; NULL behind the last. */
const struct op *graph_plan_op(const struct graph_plan *plan, uint64_t index);

/* A copy of a plan with the ops of one node replaced; NULL when it has none. */
struct graph_plan *graph_plan_with(const struct graph_plan *plan, const struct graph_node *node,
                                   const struct op *op);

#pragma GCC visibility pop
#endif
