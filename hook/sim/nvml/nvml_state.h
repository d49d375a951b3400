/* What the files of the simulated libnvidia-ml.so.1 share: initialisation and device handles.
 *
 * A handle is the address of an entry of a fixed table, so any other value is known to be none.
 * NVML keeps no state of devices: every answer is read from the segment when it is asked for. */
#ifndef GPUSHARE_SIM_NVML_STATE_H
#define GPUSHARE_SIM_NVML_STATE_H

/* Both the versioned names and the first ones are defined here. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include "machine/segment.h"

#pragma GCC visibility push(hidden)

/* The segment between nvmlInit and nvmlShutdown; NULL outside. */
struct sim_segment *nvml_segment(void);

/* The device behind a handle. Answers UNINITIALIZED, INVALID_ARGUMENT or GPU_IS_LOST when there is
 * none; `*device` is set on success alone. */
nvmlReturn_t nvml_device(nvmlDevice_t handle, const struct sim_device **device);

/* The handle of a device of the segment. */
nvmlDevice_t nvml_handle(const struct sim_device *device);

/* Finds the `index`-th device for which `matches` is true. INVALID_ARGUMENT or NOT_FOUND by the
 * caller's choice of `missing`; GPU_IS_LOST for one that fell off the bus. */
typedef bool (*nvml_match)(const struct sim_device *device, const void *wanted);
nvmlReturn_t nvml_find(nvml_match matches, const void *wanted, unsigned int index,
                       nvmlReturn_t missing, nvmlDevice_t *handle);

/* Copies a text with its final zero. INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t nvml_copy_text(const char *text, char *target, unsigned int length);

#pragma GCC visibility pop
#endif
