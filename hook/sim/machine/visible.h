/* Which devices a process sees: CUDA_VISIBLE_DEVICES and the rules for MIG instances. */
#ifndef GPUSHARE_SIM_VISIBLE_H
#define GPUSHARE_SIM_VISIBLE_H

#include "machine/segment.h"

#pragma GCC visibility push(hidden)

/* Fills `indices` (segment indices in ordinal order) and returns how many. */
int visible_devices(const struct sim_segment *segment, uint32_t indices[SIM_DEVICES_MAX]);

/* "GPU-xxxxxxxx-..." or "MIG-..." of a device. */
void visible_uuid_text(const struct sim_device *device, char text[48]);

#pragma GCC visibility pop
#endif
