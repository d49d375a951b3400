/* Plain allocations in memory that can be moved (decisions/0007): each large one in chunks at an
 * address range of its own, small ones in slabs. What cannot be served here goes to the driver, as
 * do the frees of what was not made here; the functions say so with false.
 *
 * Results are CUresult, as int. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cuMemAlloc in the calling thread's context. Passes the gate and waits for budget, but where a
 * slab has room. False: memory does not follow the turn here and now. */
bool backing_allocate(uint64_t *address, uint64_t bytes, const char *call_name, int *cu_result);
/* cuMemAllocPitch, likewise. */
bool backing_allocate_pitch(uint64_t *address, size_t *pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes, const char *call_name, int *cu_result);

/* cuMemFree: waits for the work of the allocation's context. While a capture is active it neither
 * waits nor frees; that is done with the next call here. False: not an allocation of ours. */
bool backing_free(uint64_t address, int *cu_result);
/* cuMemFreeAsync of such an allocation: freed with the next call here that waits, or sees its work
 * done. */
bool backing_free_later(uint64_t address, void *stream, int *cu_result);
/* A capture has ended, or something else was waited for: frees what was put off. */
void backing_catch_up(void);
/* Frees what was put off and whose work is done; waits for nothing. */
void backing_free_done(void);

/* A context has ended, and the driver has waited for its work: its allocations go, wherever they
 * are. */
void backing_context_ended(uint64_t generation);

/* The memory around this address stays where it is for good; the calling thread is inside the gate.
 * False: it is not on the device. */
bool backing_fix(uint64_t address);

/* What is to be told of each block before its memory is given back (sharing/ registers there). */
void backing_on_gone(void (*forget)(uint64_t block_address));
