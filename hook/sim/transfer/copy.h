/* Turns the arguments of copy calls into ops. */
#ifndef GPUSHARE_SIM_COPY_H
#define GPUSHARE_SIM_COPY_H

#include <cuda.h>
#include <stdbool.h>

#include "streams/op.h"

struct context;
struct stream;

enum copy_side { COPY_HOST, COPY_DEVICE, COPY_UNIFIED };

#pragma GCC visibility push(hidden)

/* Fills a linear copy; CUDA_ERROR_INVALID_VALUE when a device side is no device memory. */
CUresult copy_fill_linear(struct op *op, uint64_t to, enum copy_side to_side, uint64_t from,
                          enum copy_side from_side, size_t bytes);

/* Fills a copy from the descriptor of cuMemcpy3D (and of graph nodes). */
CUresult copy_fill_3d(struct op *op, const CUDA_MEMCPY3D *shape);

/* True when a copy that is made in these contexts reaches its device ends. Copies between contexts
 * name one for each end; others go by that of their stream. */
bool copy_reaches(const struct op *op, const struct context *to, const struct context *from);

/* Submits; afterwards the caller may reuse pageable host memory, as with the real driver. */
CUresult copy_submit_async(struct stream *stream, struct op *op);

#pragma GCC visibility pop
#endif
