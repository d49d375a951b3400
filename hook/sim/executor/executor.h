/* The thread that performs this process's device work, and the one that runs host functions. */
#ifndef GPUSHARE_SIM_EXECUTOR_H
#define GPUSHARE_SIM_EXECUTOR_H

#include <cuda.h>
#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* Starts both threads, once, all signals blocked. */
CUresult executor_start(void);

/* Ends the executor at its next step; the process is exiting. */
void executor_stop(void);

/* Returns when all that was submitted before and can run has begun. */
void executor_catch_up(void);

#pragma GCC visibility pop
#endif
