/* Which device addresses the work that runs at this moment touches. Unmapping them is a mistake
 * that a real device may or may not punish; here it always shows. */
#ifndef GPUSHARE_SIM_IN_USE_H
#define GPUSHARE_SIM_IN_USE_H

#include <stdint.h>

#include "streams/op.h"

#define IN_USE_PARTS_MAX 3

struct context;

struct in_use_part {
    uint64_t start;
    uint64_t bytes;
};

/* One piece of work. Belongs to the executor; linked while the work runs. */
struct in_use {
    struct in_use *next;
    struct context *context;
    int part_count;
    struct in_use_part parts[IN_USE_PARTS_MAX];
};

#pragma GCC visibility push(hidden)

/* The work begins, or is over. An end without a beginning does nothing. */
void in_use_begin(struct in_use *use, struct context *context, const struct op *op);
void in_use_end(struct in_use *use);

/* These addresses are about to lose their memory: work that touches them leaves its context with
 * CUDA_ERROR_ILLEGAL_ADDRESS, and the journal has a record of the kind FAULT. */
void in_use_unmap(uint32_t device, uint64_t start, uint64_t bytes);

#pragma GCC visibility pop
#endif
