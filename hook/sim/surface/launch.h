/* Launches: from a function, its grid and its parameters to an op. */
#ifndef GPUSHARE_SIM_LAUNCH_H
#define GPUSHARE_SIM_LAUNCH_H

#include <cuda.h>

#include "streams/op.h"

#define LAUNCH_MULTIPROCESSORS 16

#pragma GCC visibility push(hidden)

/* Checks everything that the driver checks before it accepts a launch, and fills the op. */
CUresult launch_fill(struct op *op, const void *function, const struct launch_shape *shape,
                     void **parameters, void **extra);

#pragma GCC visibility pop
#endif
