/* One piece of device work: what streams queue, graphs keep and the executor performs. */
#ifndef GPUSHARE_SIM_OP_H
#define GPUSHARE_SIM_OP_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "modules/builtin.h"

struct context;
struct event;
struct graph_memory;
struct graph_plan;
struct pool;
struct stream;

enum op_kind {
    OP_NOTHING, /* an empty node, or a record of something that takes no time */
    OP_LAUNCH,
    OP_COPY,
    OP_MEMSET,
    OP_HOST_FUNCTION,
    OP_STREAM_CALLBACK,
    OP_EVENT_RECORD,
    OP_STREAM_WAIT,
    OP_WAIT_VALUE,
    OP_WRITE_VALUE,
    OP_GRAPH,
    OP_FREE,
    OP_PREFETCH,
    OP_GRAPH_ALLOC, /* the address is there already; the node keeps it */
    OP_GRAPH_FREE,
};

/* How a launch is laid out; graphs remember it beside the op. */
struct launch_shape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
};

/* A box of rows. A linear copy is one row. Addresses are device addresses where the flag says so,
 * else host pointers. */
struct op_copy {
    uint64_t destination;
    uint64_t source;
    uint64_t width_bytes;
    uint64_t height;
    uint64_t depth;
    uint64_t destination_pitch;
    uint64_t source_pitch;
    uint64_t destination_slice; /* bytes from one layer to the next */
    uint64_t source_slice;
    bool destination_on_device;
    bool source_on_device;
    bool source_is_staged; /* the source is malloc'ed memory, freed when the copy is done */
};

struct op_memset {
    uint64_t destination;
    uint64_t pitch;
    uint64_t width; /* elements */
    uint64_t height;
    uint32_t value;
    uint32_t element_bytes;
};

struct op_value {
    uint64_t address;
    uint64_t value;
    uint32_t flags;
    uint32_t bytes; /* 4 or 8 */
};

struct op {
    enum op_kind kind;
    uint64_t order; /* in the context's order; 0 in non-blocking streams */
    uint64_t submitted_ns;
    struct context *context; /* in which it runs; differs from its stream's inside graphs */
    union {
        struct op_launch launch;
        struct op_copy copy;
        struct op_memset memset;
        struct op_value value;
        struct {
            CUhostFn function;
            void *argument;
        } host;
        struct {
            CUstreamCallback function;
            void *argument;
            CUstream handle;
        } callback;
        struct {
            struct event *event; /* a reference */
            uint64_t sequence;   /* the record's place in its stream */
        } record;
        struct {
            struct stream *stream; /* a reference */
            uint64_t sequence;
        } wait;
        struct graph_plan *plan; /* a reference */
        struct {
            struct pool *pool; /* a reference */
            uint64_t ticket;
        } free;
        struct graph_memory *memory; /* a reference */
        struct {
            uint64_t address;
            uint64_t bytes;
            uint32_t device; /* index in the segment, or MANAGED_HOST */
        } prefetch;
    };
};

#pragma GCC visibility push(hidden)

/* Drops what an op holds: references, staged memory; and holds what a copy of it shares. */
void op_hold(const struct op *op);
void op_release(const struct op *op);

#pragma GCC visibility pop
#endif
