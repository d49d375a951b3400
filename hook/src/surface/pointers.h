/* What programs ask about addresses. For allocations of backing.c, and those of other processes
 * that ipc_open.c has mapped, the answers are those of a plain allocation, and the same wherever
 * the memory is; the functions are false for all other addresses, about which the driver is asked.
 * Results are CUresult, as int. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cuMemGetAddressRange; base and bytes may be NULL. */
bool pointers_range(uint64_t address, uint64_t *base, size_t *bytes, int *cu_result);
/* cuPointerGetAttribute and cuPointerGetAttributes. */
bool pointers_attribute(uint64_t address, int attribute, void *data, int *cu_result);
bool pointers_attributes(uint64_t address, unsigned int count, const int *attributes, void **data,
                         int *cu_result);

/* Calls that only mapped memory, or memory of the older IPC, is for: a plain allocation of ours
 * answers them with an invalid value. */
bool pointers_refuse(uint64_t address, int *cu_result);

/* Other devices may use the memory from now on: as far as it is ours it stays where it is. The
 * calling thread is inside the gate, so that it is on the device. */
void pointers_fix(uint64_t address, uint64_t bytes);
/* The same is to be said of memory of another process. True, with the result: it cannot be. */
bool pointers_give_on_fails(uint64_t address, uint64_t bytes, int *cu_result);

/* The driver is about to look up addresses in a call that takes no turn: while memory is parked,
 * that waits for the turn. True, with the result: the wait was cancelled. */
bool pointers_wait_fails(const char *call_name, int *cu_result);
