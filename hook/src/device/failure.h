/* Sticky errors: after one, a context can do nothing but fail. Its turn goes back at once, and its
 * later calls pass the gate to return their error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* True for results that leave their context unusable for good. */
bool failure_is_sticky(int cu_result);

/* The driver answered this on the calling thread; where it is sticky, the current context is
 * marked, the user is told once and the agent wakes. */
void failure_look(int cu_result);

/* The same for another context, by its generation. */
void failure_of(uint64_t context, int cu_result);

/* The calling thread's current context has failed. */
bool failure_in_current_context(void);
