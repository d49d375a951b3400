/* Stream-ordered memory. */
#ifndef GPUSHARE_SIM_POOL_H
#define GPUSHARE_SIM_POOL_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The executor came to the free of this allocation: its bytes go back to its pool. */
void pool_release(uint64_t address);

#pragma GCC visibility pop
#endif
