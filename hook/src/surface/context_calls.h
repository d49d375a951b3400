/* What a call that makes or ends a context means to the rooms. A context that ends takes with it
 * what belongs to it; this is the one place that knows all of that. */
#pragma once

#include "device/contexts.h"

/* cuInit answered success. */
void context_calls_cuda_opened(void);

/* The driver has made a context, or has retained a primary one. */
void context_calls_created(void *context, int device);
void context_calls_retained(void *context, int device);
void context_calls_green_created(void *green, int device);

/* Before the driver is called: a context may end. And what the driver has answered. */
struct context_end context_calls_leave(struct context_end end);
void context_calls_left(const struct context_end *end, int cu_result);
