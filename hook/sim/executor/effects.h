/* What copies, memsets and waits for values do to memory. */
#ifndef GPUSHARE_SIM_EFFECTS_H
#define GPUSHARE_SIM_EFFECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "streams/op.h"

#pragma GCC visibility push(hidden)

/* Moves bytes [done, done + bytes) of the copy, counted row by row. False: out of reach. */
bool effects_copy(const struct op_copy *copy, uint64_t done, uint64_t bytes);
bool effects_copy_is_reachable(const struct op_copy *copy, uint64_t done, uint64_t bytes);

bool effects_memset(const struct context *context, const struct op_memset *fill);

/* True when the awaited value is there. */
bool effects_value_is_there(const struct context *context, const struct op_value *value,
                            bool *reachable);

#pragma GCC visibility pop
#endif
