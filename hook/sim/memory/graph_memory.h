/* Memory that graphs own: captured allocations.
 *
 * Its address is there from the capture on. A device is charged for it from the first launch on,
 * and keeps what was charged until it is trimmed, whether a graph uses it or not. */
#ifndef GPUSHARE_SIM_GRAPH_MEMORY_H
#define GPUSHARE_SIM_GRAPH_MEMORY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool;

struct graph_memory {
    _Atomic unsigned references;
    uint64_t address;
    uint64_t bytes;
    int ordinal;
    _Atomic bool live;         /* its node has been performed, and no free of it since */
    bool backed;               /* the rest is guarded by graph_memory_lock: it is charged */
    bool outstanding;          /* launched, with no free of it submitted yet */
    unsigned launches;         /* submitted and not over */
    struct graph_memory *next; /* all of them */
};

#pragma GCC visibility push(hidden)

/* Accessible as the pool's memory is. NULL: out of memory. */
struct graph_memory *graph_memory_new(struct pool *pool, uint64_t bytes, CUdeviceptr *address);
void graph_memory_hold(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);

/* A graph with this memory is about to be launched; `freed`: it frees it, too. Invalid value when
 * an earlier launch has left it allocated. The other two undo it, and tell that it is over. */
CUresult graph_memory_launch(struct graph_memory *memory, bool freed);
void graph_memory_launch_over(struct graph_memory *memory);

/* A free outside of its graph is about to be submitted. False: nothing to free. */
bool graph_memory_claim_free(struct graph_memory *memory);

/* The executor performs the allocation, and the free. */
void graph_memory_begin(struct graph_memory *memory);
void graph_memory_end(struct graph_memory *memory);

/* Gives up what no graph uses at the moment. */
void graph_memory_trim(int ordinal);

CUresult graph_memory_figure(int ordinal, CUgraphMem_attribute which, uint64_t *bytes);
CUresult graph_memory_reset(int ordinal, CUgraphMem_attribute which);

#pragma GCC visibility pop
#endif
