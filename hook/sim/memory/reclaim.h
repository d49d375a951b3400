/* What goes back to the devices before memory is refused. */
#ifndef GPUSHARE_SIM_RECLAIM_H
#define GPUSHARE_SIM_RECLAIM_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* What pools keep, and what only descriptors held that are closed. False: there is nothing. */
bool reclaim_unused(void);

#pragma GCC visibility pop
#endif
