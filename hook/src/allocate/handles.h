/* Memory that the program makes and maps itself, by handles of ours (decisions/0019): it moves, and
 * the calls about it answer as the driver does. Handles that are not ours (imported memory, other
 * places) are the driver's: the functions say so with false. Results are CUresult, as int. */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct physical;

/* cuMemCreate: passes the gate and waits for budget. */
bool handles_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                    const CUmemAllocationProp *properties, unsigned long long flags,
                    const char *call_name, int *cu_result);
/* cuMemRelease and cuMemRetainAllocationHandle; neither waits. */
bool handles_release(uint64_t handle, int *cu_result);
bool handles_retain(CUmemGenericAllocationHandle *handle, uint64_t address, int *cu_result);
bool handles_properties(CUmemAllocationProp *properties, uint64_t handle, int *cu_result);

/* cuMemMap and cuMemSetAccess: pass the gate, so that the memory is on the device. */
bool handles_map(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
                 unsigned long long flags, const char *call_name, int *cu_result);
bool handles_set_access(uint64_t address, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count, const char *call_name, int *cu_result);
/* cuMemUnmap, cuMemGetAccess and cuMemAddressFree: never wait, but for a copy of a chunk. */
bool handles_unmap(uint64_t address, size_t bytes, int *cu_result);
bool handles_get_access(unsigned long long *flags, const CUmemLocation *location, uint64_t address,
                        int *cu_result);
bool handles_refuse_free(uint64_t address, size_t bytes, int *cu_result);

/* Somebody else is about to use the memory by its handle (a multicast object, an array, or by an
 * export of this type; NONE: by no export): from now on it stays where it is, and `*handle` is the
 * driver's. Passes the gate, and waits for the work of the process where the memory is to become
 * one allocation for that. True, with the result: that cannot be. Memory that was not made for such
 * an export moves on: the driver refuses that, and its answer is the result.
 *
 * `*held` keeps the memory, and so the driver's handle, until handles_given follows the driver's
 * call: other threads may give the memory back meanwhile. */
bool handles_give_away_fails(CUmemGenericAllocationHandle *handle, CUmemAllocationHandleType type,
                             struct physical **held, const char *call_name, int *cu_result);
void handles_given(struct physical *held);
/* The same for the memory at an address, which nothing keeps; false too where none of ours is. */
bool handles_give_away_at_fails(uint64_t address, const char *call_name, int *cu_result);
/* The same for the handles in a list of maps of arrays, of which `*maps` is a copy from then on. */
struct handles_lent {
    struct physical **held;
    size_t count;
};
bool handles_lend_fails(CUarrayMapInfo **maps, unsigned int count, struct handles_lent *lent,
                        const char *call_name, int *cu_result);
void handles_lent_ended(const struct handles_lent *lent);

/* The memory at this address stays where it is for good; the calling thread is inside the gate.
 * False: none of ours is there. */
bool handles_fix(uint64_t address);

/* A context is about to end, and perhaps with it the last way to bring parked memory back that is
 * its device's, pools included: waits for the turn where there is such. */
void handles_context_leaves(const char *call_name);
/* A context has ended; its device may have others. */
void handles_context_ended(uint64_t generation, const void *context, int device);
