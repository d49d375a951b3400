/* What the functions of NVML that nobody simulates answer, without any header of NVML's. */
#ifndef GPUSHARE_SIM_NVML_REST_H
#define GPUSHARE_SIM_NVML_REST_H

/* An nvmlReturn_t: NOT_SUPPORTED, or UNINITIALIZED before nvmlInit and after nvmlShutdown. */
__attribute__((visibility("hidden"))) int nvml_not_simulated(void);

#endif
