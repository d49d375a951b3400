/* Places to which managed memory goes. */
#ifndef GPUSHARE_SIM_PREFETCH_H
#define GPUSHARE_SIM_PREFETCH_H

#include <cuda.h>

#pragma GCC visibility push(hidden)

/* Whether memory can be there: where the caller runs becomes a place by its name. */
CUresult prefetch_check_location(CUmemLocation *location);
/* What the older calls mean by a device. */
CUmemLocation prefetch_location_of(CUdevice device);

#pragma GCC visibility pop
#endif
