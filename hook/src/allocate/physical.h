/* Memory that the application creates and maps itself (cuMemCreate, cuMemMap): a chunk of its own,
 * which never moves, and what is mapped of it. The driver keeps it until its last handle is
 * released and its last mapping is gone; so do we. Handles may be given out again by then. */
#pragma once

#include "allocate/memory.h"

void physical_created(const struct memory_claim *claim, uint64_t handle);
void physical_retained(uint64_t handle, uint64_t address);
void physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle);

/* Before the driver is called: behind it the handle or address may be another thread's. */
void physical_releasing(uint64_t handle);
void physical_unmapping(uint64_t address, uint64_t bytes);
