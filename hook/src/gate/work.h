/* Waiting for a context's work. */
#pragma once

#include <cuda.h>
#include <stdint.h>

/* Waits for all work of the context, as cuMemFree does, unlike the calls that take mapped memory
 * down. Not while a capture is active. */
CUresult work_wait(uint64_t context);
