/* What the parts of the fake runtime share. */
#ifndef FAKE_TRACE_H
#define FAKE_TRACE_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A line in the file FAKE_TRACE. */
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The number in an environment variable; 0 without one. */
uint64_t fake_number(const char *name);
/* What a wait for the device answered: a sticky error is remembered. */
void fake_context_answered(int cu_result);

#pragma GCC visibility pop

/* fake_memory.c's, for tests too. */
int gpushare_fake_park(int device);
int gpushare_fake_restore(int device);

#endif
