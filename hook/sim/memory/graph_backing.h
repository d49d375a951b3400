/* The device's memory behind graphs: graphs have it one after the other. A device keeps it until it
 * is trimmed, whether a graph uses it or not.
 *
 * The lock of graph_memory.c guards all of this. */
#ifndef GPUSHARE_SIM_GRAPH_BACKING_H
#define GPUSHARE_SIM_GRAPH_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/region.h"

struct graph_memory;

struct graph_backing {
    struct graph_backing *next;
    int ordinal;
    uint64_t bytes;
    unsigned char *storage;
    uint64_t launch_id;         /* the last launch that has it */
    struct pool_order launched; /* its place, or that of the one before; all others come earlier */
    struct graph_memory *users; /* whose addresses lead to it */
};

/* What the graphs of a device have. */
struct graph_figures {
    uint64_t used_bytes;
    uint64_t used_high_bytes;
    uint64_t reserved_bytes; /* charged to the device: whole segments */
    uint64_t reserved_high_bytes;
};

#pragma GCC visibility push(hidden)

/* The smallest one of at least so many bytes that `fits`; NULL: none. */
struct graph_backing *graph_backing_find(int ordinal, uint64_t bytes,
                                         bool (*fits)(const struct graph_backing *, const void *),
                                         const void *argument);
/* A new one; NULL: out of memory. */
struct graph_backing *graph_backing_open(int ordinal, uint64_t bytes);

/* Gives up each one of a device for which `idle` is true, when nobody's address leads there. */
void graph_backing_trim(int ordinal, bool (*idle)(struct graph_backing *));

struct graph_figures *graph_backing_figures(int ordinal);

#pragma GCC visibility pop
#endif
