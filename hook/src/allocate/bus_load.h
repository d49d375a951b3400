/* Copies between host and device share the bus with memory that comes back ahead of another
 * notebook's turn (decisions/0017). The agent hears when a program copies much, and the scheduler
 * waits then. */
#pragma once

#include <cuda.h>
#include <stdint.h>

/* Smaller copies do not fill a bus, and their calls have no time for this. */
#define BUS_COPY_BYTES_MIN ((uint64_t)64 << 10)

/* The driver has taken a copy between host and device. */
void bus_load_copied(uint64_t bytes);
/* The same where only the addresses tell what is copied: one of ours and one that is not. */
void bus_load_line(uint64_t to, uint64_t from, uint64_t bytes);
void bus_load_flat(const CUDA_MEMCPY2D *flat);
void bus_load_box(const CUDA_MEMCPY3D *box);
