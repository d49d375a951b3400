/* Waiting for a context's work. */
#pragma once

#include <cuda.h>
#include <stdint.h>

/* Waits for all work that the context has now, as cuMemFree does, unlike the calls that take mapped
 * memory down. Disturbs no capture: CUDA_ERROR_NOT_READY where one has begun and work cannot be
 * told from what comes after it. */
CUresult work_wait(uint64_t context);
