/* Stream-ordered memory of pools that are ours (decisions/0020): it moves, and the calls about it
 * answer as the driver does. Pools that others may use, that have managed or host memory, and what
 * captures allocate, are the driver's: the functions say so with false. Results are CUresult, as
 * int. */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "gate/gate.h"

struct pool;

/* A stream as the program names it. */
struct pooling_stream {
    void *handle;
    enum gate_stream_variant variant;
};

/* From this pool; NULL: from the one of the stream's device. */
bool pooling_allocate(uint64_t *address, uint64_t bytes, void *pool, struct pooling_stream stream,
                      const char *call_name, int *cu_result);
/* cuMemFreeAsync, which never waits, and cuMemFree. */
bool pooling_free_later(uint64_t address, struct pooling_stream stream, int *cu_result);
bool pooling_free(uint64_t address, int *cu_result);
/* The memory at this address stays where it is for good; the calling thread is inside the gate.
 * False: none of ours is there. */
bool pooling_fix(uint64_t address);

/* ---- what the driver has done with a pool of its own, so that ours follows ---- */

void pooling_created(void *pool, const CUmemPoolProps *properties);
/* Destroying has two halves: behind the driver's call, what it has answered. */
struct pool *pooling_leaves(void *pool);
void pooling_left(struct pool *leaving, void *pool, int cu_result);
void pooling_current_changed(void);
/* Adds what is ours to an answer of the driver's. */
void pooling_attribute(void *pool, CUmemPool_attribute attribute, void *value);
void pooling_set_attribute(void *pool, CUmemPool_attribute attribute, const void *value);
void pooling_trim(void *pool, uint64_t keep_bytes);
/* Inside the gate. */
void pooling_set_access(void *pool, const CUmemAccessDesc *accesses, size_t count);

/* ---- what somebody has waited for ---- */

/* Ahead of the driver's call: what counts is what was freed before. */
uint64_t pooling_waits(void);
void pooling_stream_waited(struct pooling_stream stream, uint64_t freed_before);
/* `context`: NULL is the current one. */
void pooling_context_waited(void *context, uint64_t freed_before);
void pooling_event_waited(void);
/* Before it is destroyed. */
void pooling_stream_leaves(void *stream);

/* Pools of the device give up what they keep. False: that was nothing. */
bool pooling_give_up(int device);
/* So much is to be allocated: pools of the device give up what they keep, if it does not fit
 * otherwise. */
void pooling_make_room(int device, uint64_t bytes);
