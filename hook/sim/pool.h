/* Stream-ordered memory. */
#ifndef GPUSHARE_SIM_POOL_H
#define GPUSHARE_SIM_POOL_H

#include <stdint.h>

struct pool_memory;

#pragma GCC visibility push(hidden)

/* The executor came to this free of an allocation: its bytes go back to its pool, unless the
 * stream has taken them again meanwhile. */
void pool_release(uint64_t address, uint64_t ticket);

/* Memory that a graph owns: freed when the graph and all that was made of it are gone. */
void pool_memory_hold(struct pool_memory *memory);
void pool_memory_drop(struct pool_memory *memory);

#pragma GCC visibility pop
#endif
