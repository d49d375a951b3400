/* Follows contexts through the calls that make and end them, and tells the runtime when one is
 * there and when one is about to go. The driver counts the holders of a primary context; so do
 * we. What a context takes with it leaves the registry. */
#ifndef GPUSHARE_CONTEXTS_H
#define GPUSHARE_CONTEXTS_H

#pragma GCC visibility push(hidden)

/* cuInit answered success. */
void contexts_cuda_opened(void);

void contexts_opened(void *context, int device);
void contexts_attached(void *context);
void contexts_detaching(void *context);
void contexts_closing(void *context);

void contexts_primary_retained(void *context, int device);
void contexts_primary_releasing(int device);
void contexts_primary_resetting(int device);

void contexts_green_opened(void *green_context, int device);
void contexts_green_closing(void *green_context);

#pragma GCC visibility pop
#endif
