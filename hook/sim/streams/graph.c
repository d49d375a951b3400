#define _GNU_SOURCE
#include "streams/graph.h"

#include <stdlib.h>
#include <string.h>

#define NODES_GROW 16

pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;

static struct object_pool graph_pool = OBJECT_POOL(struct graph, 1 << 16);
static struct object_pool node_pool = OBJECT_POOL(struct graph_node, 1 << 20);
static struct object_pool exec_pool = OBJECT_POOL(struct graph_exec, 1 << 16);

struct graph *graph_check(CUgraph handle) {
    return object_check(&graph_pool, handle);
}

struct graph_node *graph_node_check(CUgraphNode handle) {
    return object_check(&node_pool, handle);
}

struct graph_exec *graph_exec_check(CUgraphExec handle) {
    return object_check(&exec_pool, handle);
}

struct graph *graph_open(void) {
    return object_take(&graph_pool);
}

void graph_node_close(struct graph_node *node) {
    if (node->child != NULL) graph_close(node->child);
    op_release(&node->op);
    free(node->dependencies);
    object_drop(&node_pool, node);
}

bool graph_owns_memory(const struct graph *graph) {
    bool owns = false;
    for (size_t i = 0; i < graph->node_count && !owns; i++) {
        const enum op_kind kind = graph->nodes[i]->op.kind;
        owns = kind == OP_GRAPH_ALLOC || kind == OP_GRAPH_FREE;
    }
    return owns;
}

void graph_close(struct graph *graph) {
    if (graph->instance != NULL) graph->instance->owner = NULL;
    for (size_t i = 0; i < graph->node_count; i++)
        graph_node_close(graph->nodes[i]);
    free(graph->nodes);
    object_drop(&graph_pool, graph);
}

static void forget(struct graph_node **nodes, size_t *count, const struct graph_node *node) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (nodes[i] != node) nodes[kept++] = nodes[i];
    }
    *count = kept;
}

void graph_remove(struct graph_node *node) {
    struct graph *graph = node->graph;
    for (size_t i = 0; i < graph->node_count; i++)
        forget(graph->nodes[i]->dependencies, &graph->nodes[i]->dependency_count, node);
    forget(graph->nodes, &graph->node_count, node);
    graph_node_close(node);
}

struct graph_exec *graph_exec_open(struct graph_plan *plan, cuuint64_t flags) {
    struct graph_exec *exec = object_take(&exec_pool);
    if (exec == NULL) return NULL;
    exec->plan = plan;
    exec->flags = flags;
    return exec;
}

void graph_exec_close(struct graph_exec *exec) {
    if (exec->owner != NULL) exec->owner->instance = NULL;
    graph_plan_drop(exec->plan);
    object_drop(&exec_pool, exec);
}

bool graph_add_dependency(struct graph_node *node, struct graph_node *dependency) {
    for (size_t i = 0; i < node->dependency_count; i++) {
        if (node->dependencies[i] == dependency) return true;
    }
    size_t bytes = (node->dependency_count + 1) * sizeof *node->dependencies;
    struct graph_node **grown = realloc(node->dependencies, bytes);
    if (grown == NULL) return false;
    node->dependencies = grown;
    node->dependencies[node->dependency_count++] = dependency;
    return true;
}

struct graph_node *graph_add(struct graph *graph, CUgraphNodeType type, const struct op *op,
                             struct graph_node *const *dependencies, size_t count) {
    if (graph->node_count % NODES_GROW == 0) {
        size_t bytes = (graph->node_count + NODES_GROW) * sizeof *graph->nodes;
        struct graph_node **grown = realloc(graph->nodes, bytes);
        if (grown == NULL) return NULL;
        graph->nodes = grown;
    }
    struct graph_node *node = object_take(&node_pool);
    if (node == NULL) return NULL;
    node->graph = graph;
    node->type = type;
    node->op = *op;
    op_hold(op);
    for (size_t i = 0; i < count; i++) {
        if (graph_add_dependency(node, dependencies[i])) continue;
        graph_node_close(node);
        return NULL;
    }
    graph->nodes[graph->node_count++] = node;
    return node;
}

static void set_marks(const struct graph *graph, size_t mark) {
    for (size_t i = 0; i < graph->node_count; i++)
        graph->nodes[i]->mark = mark;
}

/* A copy's nodes have the same places as the original's. */
struct graph *graph_copy(const struct graph *graph) {
    struct graph *copy = graph_open();
    if (copy == NULL) return NULL;
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct graph_node *from = graph->nodes[i];
        graph->nodes[i]->mark = i;
        struct graph_node *to = graph_add(copy, from->type, &from->op, NULL, 0);
        if (to == NULL) {
            graph_close(copy);
            return NULL;
        }
        to->function = from->function;
        to->shape = from->shape;
        if (from->child != NULL) to->child = graph_copy(from->child);
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct graph_node *from = graph->nodes[i];
        for (size_t d = 0; d < from->dependency_count; d++)
            graph_add_dependency(copy->nodes[i], copy->nodes[from->dependencies[d]->mark]);
    }
    return copy;
}

static size_t count_ops(const struct graph *graph) {
    size_t count = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct graph_node *node = graph->nodes[i];
        count += node->child != NULL ? count_ops(node->child) : 1;
    }
    return count;
}

static bool is_ready(const struct graph_node *node) {
    for (size_t d = 0; d < node->dependency_count; d++) {
        if (node->dependencies[d]->mark == 0) return false;
    }
    return true;
}

/* Repeatedly takes the first node whose dependencies are placed. False: a cycle. */
static bool place_ops(struct graph_plan *plan, const struct graph *graph) {
    set_marks(graph, 0);
    size_t placed = 0;
    size_t first_left = 0; /* before it everything is placed */
    while (placed < graph->node_count) {
        while (graph->nodes[first_left]->mark != 0)
            first_left++;
        size_t i = first_left;
        while (i < graph->node_count && (graph->nodes[i]->mark != 0 || !is_ready(graph->nodes[i])))
            i++;
        if (i == graph->node_count) return false;
        struct graph_node *node = graph->nodes[i];
        node->mark = 1;
        placed++;
        if (node->child != NULL) {
            if (!place_ops(plan, node->child)) return false;
            continue;
        }
        plan->sources[plan->count] = node;
        plan->ops[plan->count++] = node->op;
        op_hold(&node->op);
    }
    return true;
}

static struct graph_plan *plan_open(size_t count) {
    struct graph_plan *plan = calloc(1, sizeof *plan + count * sizeof plan->ops[0]);
    if (plan == NULL) return NULL;
    atomic_store(&plan->references, 1);
    plan->sources = calloc(count + 1, sizeof(struct graph_node *));
    if (plan->sources != NULL) return plan;
    free(plan);
    return NULL;
}

struct graph_plan *graph_plan_make(struct graph *graph) {
    struct graph_plan *plan = plan_open(count_ops(graph));
    if (plan == NULL) return NULL;
    if (place_ops(plan, graph)) return plan;
    graph_plan_drop(plan);
    return NULL;
}

void graph_plan_hold(struct graph_plan *plan) {
    atomic_fetch_add(&plan->references, 1);
}

void graph_plan_drop(struct graph_plan *plan) {
    if (atomic_fetch_sub(&plan->references, 1) != 1) return;
    for (size_t i = 0; i < plan->count; i++) {
        op_release(&plan->ops[i]);
    }
    free(plan->sources);
    free(plan);
}

const struct op *graph_plan_op(const struct graph_plan *plan, uint64_t index) {
    return index < plan->count ? &plan->ops[index] : NULL;
}

struct graph_plan *graph_plan_with(const struct graph_plan *plan, const struct graph_node *node,
                                   const struct op *op) {
    struct graph_plan *copy = plan_open(plan->count);
    if (copy == NULL) return NULL;
    bool found = false;
    for (size_t i = 0; i < plan->count; i++) {
        bool replaced = plan->sources[i] == node;
        found = found || replaced;
        copy->sources[i] = plan->sources[i];
        copy->ops[i] = replaced ? *op : plan->ops[i];
        copy->count++;
        op_hold(&copy->ops[i]);
    }
    if (found) return copy;
    graph_plan_drop(copy);
    return NULL;
}
