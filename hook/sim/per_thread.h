/* Each thread's own default stream in each context, made at first use, closed when it ends. */
#ifndef GPUSHARE_SIM_PER_THREAD_H
#define GPUSHARE_SIM_PER_THREAD_H

struct context;
struct stream;

#pragma GCC visibility push(hidden)

/* NULL when out of memory. */
struct stream *per_thread_stream(struct context *context);

#pragma GCC visibility pop
#endif
