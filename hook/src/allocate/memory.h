/* Counts device memory, holds the tenant to its cap, and answers for it.
 *
 * An allocation is claimed before the driver is called, so that two threads cannot pass the cap
 * together, and kept or unclaimed behind it. What is freed leaves the registry before the driver
 * is called, since another thread may be given the address at once. */
#pragma once

#include "allocate/refusal.h"
#include "gate/gate.h"
#include "memory/registry.h"

#define MEMORY_CURRENT_DEVICE (-1)
#define MEMORY_NOT_ON_DEVICE (-2) /* host memory, or no current context: not counted */

/* An allocation on its way through the driver. */
struct memory_claim {
    int device;
    uint64_t bytes;
    bool stands; /* it fits the budget: its call passes the gate, whatever comes meanwhile */
    bool waits;  /* its call waits at the gate; or it does not fit any more, and is to be ended */
};

/* Claims room for an allocation, under the tenant's cap, and waits for it where memory follows the
 * turn. 0, or the CUresult that the caller answers: out-of-memory, or cancelled. Not inside the
 * gate. */
int memory_claim(struct memory_claim *claim, int device, uint64_t bytes, const char *function);
/* For what belongs to a capture, which never waits: looks at the cap alone, and leaves no claim. */
int memory_captured(struct memory_claim *claim, int device, uint64_t bytes, const char *function);
/* An allocation of ours ends in out-of-memory: tells the user. */
void memory_refused(enum refusal_kind kind, int device, uint64_t bytes, const char *function);
void memory_unclaim(const struct memory_claim *claim);
/* What was claimed is counted in the place of its claim, or not at all. */
void memory_claim_ended(const struct memory_claim *claim);
/* The allocation was made, with `bytes` in the end. */
void memory_keep(const struct memory_claim *claim, enum registry_kind kind, uint64_t key,
                 uint64_t bytes);
/* Its call passes the gate, or waits at it. A claim that waited stands then. */
enum gate_answer memory_enter(struct memory_claim *claim, struct gate_call call);

/* The driver was out of memory in a call that is no allocation, so nobody knows how much it takes.
 * 0: others have made room, so that the call is worth another try; else the CUresult that it
 * answers: out-of-memory, or cancelled. */
int memory_room_for(const char *function);
/* The same for a call that opens a context. */
int memory_room_for_context(int device, const char *function);
/* The same for a launch of a graph, which takes what the graph allocates. */
int memory_room_for_graph(void *executable, const char *function);
/* The same for what was claimed. */
int memory_room_for_claim(struct memory_claim *claim, const char *function);
/* And for a block, for which the driver takes no more than its size, and which may be tried more
 * than once: `tries` says how often it has been. */
int memory_room_for_block(struct memory_claim *claim, uint32_t tries, const char *function);

/* The driver has answered a free of what was taken from the registry: on failure it goes back. */
void memory_freed(const struct allocation *taken, int cu_result);

void memory_pool_created(uint64_t pool, int device);
void memory_pool_destroyed(uint64_t pool);
/* Where the allocations of a pool are; the current device for pools made elsewhere. */
int memory_pool_device(uint64_t pool);
/* Before a graph is launched that allocates: claims what it needs beyond what graphs have of the
 * device unused, as memory_claim does. Behind the launch memory_pools_changed finds what it took.
 */
int memory_claim_graph(void *executable, const char *function);
/* Where stream-ordered allocations in this stream are, and the pool that they are from (NULL: not
 * known). */
int memory_stream_device(void *stream);
void *memory_pool_of(int device);
/* What an allocation from a pool takes of the device beyond what the pool keeps. */
uint64_t memory_beyond_pool(void *pool, uint64_t bytes);
/* As memory_keep, for a stream-ordered allocation. */
void memory_keep_from_pool(const struct memory_claim *claim, void *pool, uint64_t key,
                           uint64_t bytes);
/* Something may have changed what pools keep. */
void memory_pools_changed(void);

/* Whether an allocation in this stream belongs to a graph. */
bool memory_is_captured(void *stream, enum gate_stream_variant variant);

/* The bytes of an array; dimensions of 0 count as 1. */
uint64_t memory_array_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned int format,
                            unsigned int channels, unsigned int levels);

/* Makes of what the driver says of a device what the tenant may have of it. */
void memory_report(int device, uint64_t *bytes_free, uint64_t *bytes_total);
/* What the tenant has allocated there, in all its processes; its cap or 0. */
uint64_t memory_used_by_tenant(int device, uint64_t *cap_bytes);

/* The ordinal of the calling thread's device; MEMORY_NOT_ON_DEVICE without a context. */
int memory_current_device(void);

/* Tells the runtime how much there is now. */
void memory_tell(int device);
