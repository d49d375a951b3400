/* This process's part in the simulated machine: its segment, its row, its life from cuInit to exit
 * or fork. Set once by cuInit, then read without a lock. */
#ifndef GPUSHARE_SIM_PROCESS_H
#define GPUSHARE_SIM_PROCESS_H

#include "segment.h"

#include <cuda.h>

#pragma GCC visibility push(hidden)

extern struct sim_segment *process_segment;
extern struct sim_process *process_row;
extern uint32_t process_pid; /* of the process that called cuInit */

/* The devices that this process may see (CUDA_VISIBLE_DEVICES, MIG rules): ordinal to index in the
 * segment. */
extern uint32_t process_devices[SIM_DEVICES_MAX];
extern int process_device_count;

/* Opens the machine and joins it; once per process. */
CUresult process_initialise(void);

#pragma GCC visibility pop
#endif
