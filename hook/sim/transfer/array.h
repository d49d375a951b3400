/* Arrays: memory with a shape, reached by copies alone (there are no textures). */
#ifndef GPUSHARE_SIM_ARRAY_H
#define GPUSHARE_SIM_ARRAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Where an array's bytes are, how long a row is and how many rows a layer has; false: no array. */
bool array_place(CUarray handle, uint64_t *address, uint64_t *row_bytes, uint64_t *rows);

#pragma GCC visibility pop
#endif
