/* What a call that makes or ends a context means to the rooms. A context that ends takes with it
 * what belongs to it; this is the one place that knows all of that. */
#pragma once

#include "device/contexts.h"

/* cuInit answered success. */
void context_calls_cuda_opened(void);

/* A context has ended, and nothing of it is left in the table of contexts. */
void context_calls_ended(struct context_end ended);

/* Before the driver is called: a context may end. And what the driver has answered. */
struct context_end context_calls_leave(struct context_end end);
void context_calls_left(const struct context_end *end, int cu_result);
