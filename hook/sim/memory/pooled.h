/* Stream-ordered memory. An allocation is usable as soon as the call returns, which is earlier than
 * the driver promises. Its free keeps the stream's order: work that came before it has the memory
 * until the stream comes to it. */
#ifndef GPUSHARE_SIM_POOLED_H
#define GPUSHARE_SIM_POOLED_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/pool.h"

#define POOLED_WAITS_MAX 8u

/* A stream that allocates, and what it waits for. */
struct pooled_taker {
    uint64_t stream_id;
    const struct pool_order *waits;
    size_t wait_count;
    struct pool_order held_by[POOLED_WAITS_MAX]; /* what it has to wait for besides */
    size_t held_count;
};

#pragma GCC visibility push(hidden)

CUresult pooled_allocate(struct pool *pool, size_t bytes, struct pooled_taker *taker,
                         CUdeviceptr *address);

/* What another process has at `file_offset` of an imported pool. False: out of memory. */
bool pooled_import(struct pool *pool, uint64_t file_offset, size_t bytes, CUdeviceptr *address);

/* An allocation is about to be freed in a stream; `waiting_context_id`: the context whose legacy
 * stream waits for that stream, or 0. A ticket, or 0: it is not allocated. */
uint64_t pooled_free(struct pool *pool, uint64_t address, uint64_t stream_id,
                     uint64_t waiting_context_id);
/* Its place in the stream; or it does not come. */
void pooled_place_free(struct pool *pool, uint64_t ticket, uint64_t sequence);
void pooled_keep(struct pool *pool, uint64_t ticket);

/* The executor came to this free: what nobody has taken again is not allocated any more. */
void pooled_release(struct pool *pool, uint64_t ticket);

#pragma GCC visibility pop
#endif
