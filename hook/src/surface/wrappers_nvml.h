/* What the rules of hook/spec/cuda_api.toml are made of, for libnvidia-ml. */
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS /* every exported name as it is, no renaming macros */
#include <nvml.h>
/* Before the visibility of exports is in force: */
#include "surface/nvml_report.h"
#include "surface/wrappers.h"

/* The records differ between versions of the call, in all but these two members. */
#define NVML_REPORT_PROCESSES(count, records)                                             \
    if (result == NVML_SUCCESS && (count) != NULL && (records) != NULL) {                 \
        unsigned int kept = 0;                                                            \
        for (unsigned int i = 0; i < *(count); i++)                                       \
            if (nvml_keep_process(device, (records)[i].pid, &(records)[i].usedGpuMemory)) \
                (records)[kept++] = (records)[i];                                         \
        *(count) = kept;                                                                  \
    }
