/* cuGraph*: building, asking, instantiating, launching. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/graph_memory.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/event.h"
#include "streams/graph.h"
#include "streams/resolve.h"
#include "streams/stream.h"
#include "surface/launch.h"
#include "transfer/copy.h"

CUresult sim_cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    if (phGraph == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&graphs_lock);
    *phGraph = (CUgraph)graph_open();
    pthread_mutex_unlock(&graphs_lock);
    return *phGraph == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult sim_cuGraphDestroy(CUgraph hGraph) {
    pthread_mutex_lock(&graphs_lock);
    struct graph *graph = graph_check(hGraph);
    if (graph != NULL) graph_close(graph);
    pthread_mutex_unlock(&graphs_lock);
    return graph == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
    pthread_mutex_lock(&graphs_lock);
    struct graph *graph = graph_check(originalGraph);
    const bool owns_memory = graph != NULL && graph_owns_memory(graph);
    const bool can_be = graph != NULL && phGraphClone != NULL && !owns_memory;
    struct graph *copy = can_be ? graph_copy(graph) : NULL;
    if (copy != NULL) *phGraphClone = (CUgraph)copy;
    pthread_mutex_unlock(&graphs_lock);
    if (copy != NULL) return CUDA_SUCCESS;
    return owns_memory ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

/* Adds a node; all the checks that the kinds of nodes share. */
static CUresult add_node(CUgraphNode *result, CUgraph handle, const CUgraphNode *dependencies,
                         size_t count, CUgraphNodeType type, const struct op *op,
                         struct graph_node **added) {
    CUresult answer = CUDA_ERROR_INVALID_VALUE;
    if (result == NULL || (count > 0 && dependencies == NULL)) return answer;
    pthread_mutex_lock(&graphs_lock);
    struct graph *graph = graph_check(handle);
    bool known = graph != NULL;
    for (size_t i = 0; known && i < count; i++) {
        const struct graph_node *dependency = graph_node_check(dependencies[i]);
        known = dependency != NULL && dependency->graph == graph;
    }
    if (known) {
        struct graph_node *const *nodes = (struct graph_node *const *)dependencies;
        struct graph_node *node = graph_add(graph, type, op, nodes, count);
        answer = node == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        if (node != NULL) *result = (CUgraphNode)node;
        if (added != NULL) *added = node;
    }
    pthread_mutex_unlock(&graphs_lock);
    return answer;
}

static struct launch_shape shape_of(const CUDA_KERNEL_NODE_PARAMS *params) {
    return (struct launch_shape){.grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
                                 .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
                                 .shared_bytes = params->sharedMemBytes};
}

static CUresult fill_kernel(struct op *op, const CUDA_KERNEL_NODE_PARAMS *params) {
    if (params == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct launch_shape shape = shape_of(params);
    const void *function =
        params->func != NULL ? (const void *)params->func : (const void *)params->kern;
    return launch_fill(op, function, &shape, params->kernelParams, params->extra);
}

CUresult sim_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                     const CUgraphNode *dependencies, size_t numDependencies,
                                     const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    struct op op = {.kind = OP_LAUNCH};
    struct graph_node *node = NULL;
    CUresult result = fill_kernel(&op, nodeParams);
    if (result != CUDA_SUCCESS) return result;
    result = add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL,
                      &op, &node);
    if (result != CUDA_SUCCESS) return result;
    node->function =
        nodeParams->func != NULL ? (const void *)nodeParams->func : (const void *)nodeParams->kern;
    node->shape = shape_of(nodeParams);
    return CUDA_SUCCESS;
}

/* The older structure is a prefix of the newer one. */
static CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1 *old) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = old->func,
                                     .gridDimX = old->gridDimX,
                                     .gridDimY = old->gridDimY,
                                     .gridDimZ = old->gridDimZ,
                                     .blockDimX = old->blockDimX,
                                     .blockDimY = old->blockDimY,
                                     .blockDimZ = old->blockDimZ,
                                     .sharedMemBytes = old->sharedMemBytes,
                                     .kernelParams = old->kernelParams,
                                     .extra = old->extra};
}

CUresult sim_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    if (nodeParams == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS params = newer(nodeParams);
    return sim_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult sim_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    struct op op;
    if (copyParams == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct context *context = context_check(ctx);
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = copy_fill_3d(&op, copyParams);
    if (result != CUDA_SUCCESS) return result;
    if (!copy_reaches(&op, context, context)) return CUDA_ERROR_INVALID_VALUE;
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY,
                    &op, NULL);
}

CUresult sim_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    if (memsetParams == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct context *context = context_check(ctx);
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    unsigned element = memsetParams->elementSize;
    if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
    const size_t rows_ahead = memsetParams->height > 0 ? memsetParams->height - 1 : 0;
    if (!memory_reachable(context, memsetParams->dst,
                          rows_ahead * memsetParams->pitch + memsetParams->width * element))
        return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_MEMSET,
                    .memset = {.destination = memsetParams->dst,
                               .pitch = memsetParams->pitch,
                               .width = memsetParams->width,
                               .height = memsetParams->height,
                               .value = memsetParams->value,
                               .element_bytes = element}};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET,
                    &op, NULL);
}

CUresult sim_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                const CUDA_HOST_NODE_PARAMS *nodeParams) {
    if (nodeParams == NULL || nodeParams->fn == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_HOST_FUNCTION,
                    .host = {.function = nodeParams->fn, .argument = nodeParams->userData}};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST,
                    &op, NULL);
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies) {
    struct op op = {.kind = OP_NOTHING};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
                    &op, NULL);
}

CUresult sim_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                       const CUgraphNode *dependencies, size_t numDependencies,
                                       CUevent event) {
    if (event_check(event) == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_EVENT_RECORD, .record = {.event = event_check(event)}};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies,
                    CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op, NULL);
}

CUresult sim_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies, size_t numDependencies,
                                      CUgraph childGraph) {
    pthread_mutex_lock(&graphs_lock);
    struct graph *child = graph_check(childGraph);
    struct graph *copy = child == NULL ? NULL : graph_copy(child);
    pthread_mutex_unlock(&graphs_lock);
    if (copy == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_NOTHING};
    struct graph_node *node = NULL;
    CUresult result = add_node(phGraphNode, hGraph, dependencies, numDependencies,
                               CU_GRAPH_NODE_TYPE_GRAPH, &op, &node);
    pthread_mutex_lock(&graphs_lock);
    if (result == CUDA_SUCCESS) {
        node->child = copy;
    } else {
        graph_close(copy);
    }
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

CUresult sim_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                    size_t numDependencies) {
    CUresult result = CUDA_SUCCESS;
    if (numDependencies > 0 && (from == NULL || to == NULL)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&graphs_lock);
    if (graph_check(hGraph) == NULL) result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < numDependencies; i++) {
        struct graph_node *first = graph_node_check(from[i]);
        struct graph_node *second = graph_node_check(to[i]);
        if (first == NULL || second == NULL || first == second) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (!graph_add_dependency(second, first)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

CUresult sim_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                       const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                       size_t numDependencies) {
    (void)edgeData;
    return sim_cuGraphAddDependencies(hGraph, from, to, numDependencies);
}

CUresult sim_cuGraphDestroyNode(CUgraphNode hNode) {
    pthread_mutex_lock(&graphs_lock);
    struct graph_node *node = graph_node_check(hNode);
    if (node != NULL) graph_remove(node);
    pthread_mutex_unlock(&graphs_lock);
    return node == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Copies what fits; without an array it only counts. */
static void give_nodes(struct graph_node *const *nodes, size_t count, CUgraphNode *to,
                       size_t *room) {
    if (to == NULL) {
        *room = count;
        return;
    }
    for (size_t i = 0; i < *room; i++)
        to[i] = i < count ? (CUgraphNode)nodes[i] : NULL;
    if (*room > count) *room = count;
}

CUresult sim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    pthread_mutex_lock(&graphs_lock);
    struct graph *graph = graph_check(hGraph);
    if (graph != NULL && numNodes != NULL)
        give_nodes(graph->nodes, graph->node_count, nodes, numNodes);
    pthread_mutex_unlock(&graphs_lock);
    return graph == NULL || numNodes == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&graphs_lock);
    struct graph *graph = graph_check(hGraph);
    struct graph_node **roots = NULL;
    if (graph != NULL && numRootNodes != NULL)
        roots = calloc(graph->node_count + 1, sizeof(struct graph_node *));
    if (roots != NULL) {
        size_t count = 0;
        for (size_t i = 0; i < graph->node_count; i++) {
            if (graph->nodes[i]->dependency_count == 0) roots[count++] = graph->nodes[i];
        }
        give_nodes(roots, count, rootNodes, numRootNodes);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&graphs_lock);
    free(roots);
    return result;
}

CUresult sim_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    const struct graph_node *node = graph_node_check(hNode);
    if (node == NULL || type == NULL) return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

/* Accesses are not told. */
CUresult sim_cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    const struct graph_node *node = graph_node_check(hNode);
    if (node == NULL || params == NULL || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    const struct graph_memory *memory = node->op.memory;
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->ordinal}},
        .bytesize = memory->bytes,
        .dptr = memory->address,
    };
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                        size_t *numDependencies) {
    const struct graph_node *node = graph_node_check(hNode);
    if (node == NULL || numDependencies == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&graphs_lock);
    give_nodes(node->dependencies, node->dependency_count, dependencies, numDependencies);
    pthread_mutex_unlock(&graphs_lock);
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                           CUgraphEdgeData *edgeData, size_t *numDependencies) {
    CUresult result = sim_cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
    if (result == CUDA_SUCCESS && edgeData != NULL && dependencies != NULL)
        memset(edgeData, 0, *numDependencies * sizeof *edgeData);
    return result;
}

CUresult sim_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *params) {
    const struct graph_node *node = graph_node_check(hNode);
    if (node == NULL || params == NULL || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_KERNEL_NODE_PARAMS){.func = (CUfunction)(uintptr_t)node->function,
                                        .gridDimX = node->shape.grid[0],
                                        .gridDimY = node->shape.grid[1],
                                        .gridDimZ = node->shape.grid[2],
                                        .blockDimX = node->shape.block[0],
                                        .blockDimY = node->shape.block[1],
                                        .blockDimZ = node->shape.block[2],
                                        .sharedMemBytes = node->shape.shared_bytes};
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    CUDA_KERNEL_NODE_PARAMS found;
    CUresult result = sim_cuGraphKernelNodeGetParams_v2(hNode, &found);
    if (result != CUDA_SUCCESS || params == NULL) return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_KERNEL_NODE_PARAMS_v1){.func = found.func,
                                           .gridDimX = found.gridDimX,
                                           .gridDimY = found.gridDimY,
                                           .gridDimZ = found.gridDimZ,
                                           .blockDimX = found.blockDimX,
                                           .blockDimY = found.blockDimY,
                                           .blockDimZ = found.blockDimZ,
                                           .sharedMemBytes = found.sharedMemBytes};
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *phGraphExec, CUgraph hGraph, cuuint64_t flags) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (phGraphExec == NULL) return result;
    pthread_mutex_lock(&graphs_lock);
    struct graph *graph = graph_check(hGraph);
    const bool has_instance = graph != NULL && graph->instance != NULL;
    if (has_instance) result = CUDA_ERROR_NOT_SUPPORTED;
    struct graph_plan *plan = graph == NULL || has_instance ? NULL : graph_plan_make(graph);
    if (plan != NULL) {
        struct graph_exec *exec = graph_exec_open(plan, flags);
        result = exec == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        if (exec == NULL) graph_plan_drop(plan);
        if (exec != NULL && graph_owns_memory(graph)) {
            exec->owner = graph;
            graph->instance = exec;
        }
        *phGraphExec = (CUgraphExec)exec;
    }
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                         unsigned long long flags) {
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult sim_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
                                   CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize) {
    if (phErrorNode != NULL) *phErrorNode = NULL;
    if (logBuffer != NULL && bufferSize > 0) logBuffer[0] = '\0';
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult sim_cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS) return result;
    return graph_exec_check(hGraph) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    if (instantiateParams == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (result == CUDA_SUCCESS &&
        (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        return sim_cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
    return result;
}

CUresult sim_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
    struct graph_exec *exec = graph_exec_check(hGraphExec);
    if (exec == NULL || flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphExecDestroy(CUgraphExec hGraphExec) {
    pthread_mutex_lock(&graphs_lock);
    struct graph_exec *exec = graph_exec_check(hGraphExec);
    if (exec != NULL) graph_exec_close(exec);
    pthread_mutex_unlock(&graphs_lock);
    return exec == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                               const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    struct op op = {.kind = OP_LAUNCH};
    CUresult result = fill_kernel(&op, nodeParams);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&graphs_lock);
    struct graph_exec *exec = graph_exec_check(hGraphExec);
    struct graph_node *node = graph_node_check(hNode);
    struct graph_plan *plan =
        exec == NULL || node == NULL ? NULL : graph_plan_with(exec->plan, node, &op);
    if (plan != NULL) {
        graph_plan_drop(exec->plan);
        exec->plan = plan;
    }
    pthread_mutex_unlock(&graphs_lock);
    return plan == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    if (nodeParams == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS params = newer(nodeParams);
    return sim_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &params);
}

/* The new graph has to have the same shape; its plan then takes the old one's place. */
CUresult sim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                  CUgraphExecUpdateResultInfo *resultInfo) {
    if (resultInfo == NULL) return CUDA_ERROR_INVALID_VALUE;
    memset(resultInfo, 0, sizeof *resultInfo);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&graphs_lock);
    struct graph_exec *exec = graph_exec_check(hGraphExec);
    struct graph *graph = graph_check(hGraph);
    struct graph_plan *plan = exec == NULL || graph == NULL ? NULL : graph_plan_make(graph);
    if (plan != NULL) {
        bool same = plan->count == exec->plan->count;
        for (size_t i = 0; same && i < plan->count; i++) {
            same = plan->ops[i].kind == exec->plan->ops[i].kind;
            plan->sources[i] = exec->plan->sources[i];
        }
        resultInfo->result =
            same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        graph_plan_drop(same ? exec->plan : plan);
        if (same) exec->plan = plan;
        result = same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    pthread_mutex_unlock(&graphs_lock);
    return result;
}
