/* Work for a stream: queued, or captured. */
#ifndef GPUSHARE_SIM_SUBMIT_H
#define GPUSHARE_SIM_SUBMIT_H

#include <cuda.h>
#include <stdint.h>

struct op;
struct stream;

#pragma GCC visibility push(hidden)

/* Queues a copy of `op`, or adds it to the graph that the stream captures; *sequence is then 0. */
CUresult submit(struct stream *stream, struct op *op, uint64_t *sequence);

/* Submits and waits. */
CUresult submit_and_wait(struct stream *stream, struct op *op);

#pragma GCC visibility pop
#endif
