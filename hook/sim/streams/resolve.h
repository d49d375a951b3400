/* Which stream a handle means. */
#ifndef GPUSHARE_SIM_RESOLVE_H
#define GPUSHARE_SIM_RESOLVE_H

#include <cuda.h>

struct stream;

#pragma GCC visibility push(hidden)

/* The stream that a handle means in the call under way, its context usable. Each thread has a
 * default stream of its own in each context. */
CUresult stream_resolve(CUstream handle, struct stream **stream);

#pragma GCC visibility pop
#endif
