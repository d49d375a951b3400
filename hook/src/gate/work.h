/* Waiting for a context's work. */
#ifndef GPUSHARE_WORK_H
#define GPUSHARE_WORK_H

#include <cuda.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Waits for all work of the context, as cuMemFree does, unlike the calls that take mapped memory
 * down. Not while a capture is active. */
CUresult work_wait(uint64_t context);

#pragma GCC visibility pop
#endif
