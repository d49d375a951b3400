/* Host functions run in a thread of their own, so that one that waits holds up its stream alone. */
#ifndef GPUSHARE_SIM_HOST_THREAD_H
#define GPUSHARE_SIM_HOST_THREAD_H

#include <stdbool.h>

#include "streams/op.h"
#include "streams/stream.h"

#pragma GCC visibility push(hidden)

bool host_thread_start(void);

/* Runs the op's function; sets stream->execution.host_done and wakes the executor afterwards. */
void host_thread_post(struct stream *stream, const struct op *op);

#pragma GCC visibility pop
#endif
