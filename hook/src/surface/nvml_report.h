/* NVML's answers, cut down to the tenant: what nvidia-smi and monitoring libraries show in a
 * kernel agrees with what cuMemGetInfo says there. */
#pragma once

#include <nvml.h>
#include <stdbool.h>

/* Each takes what the driver answered, and leaves it as it is where nothing is known. */
void nvml_report_memory(nvmlDevice_t device, nvmlMemory_t *memory);
void nvml_report_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
void nvml_report_process_details(nvmlDevice_t device, nvmlProcessDetailList_t *list);

/* Whether a process of the driver's list is of this tenant; of this very process the bytes become
 * those that we count. */
bool nvml_keep_process(nvmlDevice_t device, unsigned int pid, unsigned long long *bytes_used);
