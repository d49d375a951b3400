/* Memory that graphs own: captured allocations.
 *
 * Its address is there from the capture on. What backs it comes with a launch, and may have been
 * another graph's before. */
#ifndef GPUSHARE_SIM_GRAPH_MEMORY_H
#define GPUSHARE_SIM_GRAPH_MEMORY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct graph_backing;
struct pool;
struct pool_order;

struct graph_memory {
    _Atomic unsigned references;
    struct pool *pool; /* a reference: whose access it has */
    uint64_t address;
    uint64_t bytes;
    int ordinal;
    _Atomic bool live;             /* its node has been performed, and no free of it since */
    _Atomic bool backed;           /* it was launched, and not trimmed since */
    struct graph_backing *backing; /* the rest is guarded by graph_memory_lock */
    struct graph_memory *next_user;
    bool outstanding; /* launched, with no free of it submitted yet */
    bool outlives; /* a launch has left it allocated, or will: no other work shares what it has */
    unsigned launches; /* submitted and not over */
    bool freeing;      /* a free outside of its graph is submitted and not over */
};

#pragma GCC visibility push(hidden)

/* Accessible as the pool's memory is. NULL: out of memory. */
struct graph_memory *graph_memory_new(struct pool *pool, uint64_t bytes, CUdeviceptr *address);
void graph_memory_hold(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);

/* A launch. No two allocations of one have the same memory. */
struct graph_launch {
    uint64_t id;
    uint64_t stream_id;
};

/* A graph with this memory is about to be launched; `freed`: it frees it, too. Invalid value when
 * an earlier launch has left it allocated. The launch comes after the work at `before`, where that
 * has a sequence. The others tell its place, undo it, and tell that it is over.
 * One launch claims its memory and tells its place before the next one does. */
CUresult graph_memory_launch(struct graph_memory *memory, const struct graph_launch *launch,
                             bool freed, struct pool_order *before);
void graph_memory_place_launch(struct graph_memory *memory, const struct pool_order *place);
void graph_memory_undo_launch(struct graph_memory *memory);
void graph_memory_launch_over(struct graph_memory *memory);

/* A free outside of its graph is about to be submitted. False: nothing to free. */
bool graph_memory_claim_free(struct graph_memory *memory);
/* It does not come. */
void graph_memory_keep(struct graph_memory *memory);

/* The executor performs the allocation, and the free. */
void graph_memory_begin(struct graph_memory *memory);
void graph_memory_end(struct graph_memory *memory);

/* Gives up what no graph uses at the moment. */
void graph_memory_trim(int ordinal);

CUresult graph_memory_figure(int ordinal, CUgraphMem_attribute which, uint64_t *bytes);
CUresult graph_memory_reset(int ordinal, CUgraphMem_attribute which);

#pragma GCC visibility pop
#endif
