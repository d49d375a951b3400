/* Mapped memory: chunks (physical memory), reservations (addresses) and what joins them. */
#ifndef GPUSHARE_SIM_MAPPING_H
#define GPUSHARE_SIM_MAPPING_H

#include <stdint.h>

struct chunk;

#pragma GCC visibility push(hidden)

/* Drops a mapping's or a handle's hold on a chunk; the last one gives its bytes back. */
void chunk_drop(struct chunk *chunk);

#pragma GCC visibility pop
#endif
