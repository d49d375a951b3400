/* Follows contexts through the calls that make and end them, and tells the runtime when one is
 * there and when one is about to go. The driver counts the holders of a primary context; so do
 * we. What a context takes with it leaves the registry. */
#ifndef GPUSHARE_CONTEXTS_H
#define GPUSHARE_CONTEXTS_H

#include <cuda.h>
#include <stdbool.h>

#define CONTEXTS_NONE (-1) /* no context that is known goes */

#pragma GCC visibility push(hidden)

/* cuInit answered success. */
void contexts_cuda_opened(void);

void contexts_opened(void *context, int device);
void contexts_attached(void *context);
int contexts_detaching(void *context);
int contexts_closing(void *context);

void contexts_primary_retained(void *context, int device);
int contexts_primary_releasing(int device);
int contexts_primary_resetting(int device);

void contexts_green_opened(void *green_context, int device);
int contexts_green_closing(void *green_context);

/* Whether memory allocated in this context lives as long as the context, on this device. That of a
 * green context belongs to another. */
bool contexts_own_memory(void *context, int device);

/* Waits for all work of the context, as cuMemFree does, unlike the calls that take mapped memory
 * down. Not while a capture is active. */
CUresult contexts_wait_for_work(void *context);

/* The driver has taken down what `_closing`, `_releasing` and the like gave the device of. Until
 * then it waits for the context's work, and so does a drain. */
void contexts_closed(int device);

#pragma GCC visibility pop
#endif
