/* Device memory for movable allocations: the one place that says what it is like, so that a chunk
 * that comes back is as it was. */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/driver.h"

/* Takes so much (a multiple of CHUNK_GRANULE) of the device. */
CUresult device_memory_create(const struct driver *cuda, CUmemGenericAllocationHandle *handle,
                              uint64_t bytes, int device);

/* Whether that memory can be given to other processes. */
bool device_memory_shareable(int device);
