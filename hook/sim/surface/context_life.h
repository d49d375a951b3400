/* How contexts begin and end, with everything that is theirs. */
#ifndef GPUSHARE_SIM_CONTEXT_LIFE_H
#define GPUSHARE_SIM_CONTEXT_LIFE_H

#include <stdbool.h>

#include "process/context.h"

#pragma GCC visibility push(hidden)

CUresult context_create(int ordinal, unsigned flags, bool primary, struct context **context);
void context_destroy(struct context *context);

#pragma GCC visibility pop
#endif
