/* Device memory for movable allocations: the one place that says what it is like, so that a chunk
 * that comes back is as it was. */
#ifndef GPUSHARE_DEVICE_MEMORY_H
#define GPUSHARE_DEVICE_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/driver.h"

#pragma GCC visibility push(hidden)

/* Takes so much (a multiple of CHUNK_GRANULE) of the device. */
CUresult device_memory_create(const struct driver *cuda, CUmemGenericAllocationHandle *handle,
                              uint64_t bytes, int device);

/* Whether that memory can be given to other processes. */
bool device_memory_shareable(int device);

#pragma GCC visibility pop
#endif
