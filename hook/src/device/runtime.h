/* What the parts of the runtime ask of lifecycle.c; lifecycle.h is what the wrappers see. */
#ifndef GPUSHARE_RUNTIME_H
#define GPUSHARE_RUNTIME_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* The calling thread has a current context, and the tables know it from now on at the latest: a
 * context may have been made by a way that no wrapper sees. */
bool runtime_know_current_context(void);

#pragma GCC visibility pop
#endif
