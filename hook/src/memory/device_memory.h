/* Device memory for movable allocations: the one place that says what it is like, so that a chunk
 * that comes back is as it was. Managed memory stays mapped: here only its chunk says whether it is
 * on the device. */
#pragma once

#include "base/driver.h"
#include "memory/chunks.h"
#include "memory/registry.h"

/* Takes as much of the device as the chunk has, rounded up. */
CUresult device_memory_create(const struct driver *cuda, CUmemGenericAllocationHandle *handle,
                              const struct chunk *chunk);

/* Puts device memory at the chunk's addresses, as it was when it was allocated: the very memory
 * that the driver would not take back, where there is such. Nobody may use it before it is given
 * access. On failure the chunk says what it has: device_memory_take_off follows. */
CUresult device_memory_put(struct chunk *chunk);
/* Takes its device memory from the chunk. On failure the chunk says what it still has. */
CUresult device_memory_take_off(struct chunk *chunk);
/* The same of one of its addresses, if it is mapped there. */
CUresult device_memory_unmap(struct mapping *mapping);
/* It has its memory, at all of its addresses. */
bool device_memory_is_whole(const struct chunk *chunk);
/* Lets a device use what is mapped there, and those that may use the memory of `owner`, which has
 * it. Most often the two are the same. */
CUresult device_memory_give_access(uint64_t address, uint64_t bytes, int owner, int user);
/* Lets the devices use what is mapped there whose flags are not 0. */
CUresult device_memory_give_these(uint64_t address, uint64_t bytes,
                                  const uint8_t flags[REGISTRY_DEVICES_MAX]);
/* Lets those use the chunk who might before it left, at each of its addresses. */
CUresult device_memory_give_accesses(const struct chunk *chunk);

/* A copy of the chunk needs an address at which its device may write: where the program has none,
 * `open` makes one of ours, until `close`. Between the two, device_memory_copied_at. */
CUresult device_memory_open(struct chunk *chunk);
uint64_t device_memory_copied_at(const struct chunk *chunk);
void device_memory_close(struct chunk *chunk);

/* Whether that memory can be given to other processes. */
bool device_memory_shareable(int device);
