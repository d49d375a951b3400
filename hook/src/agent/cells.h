/* Notebook cells, as the kernel's own Python reports them. Counts only: the agent acts on them. */
#ifndef GPUSHARE_CELLS_H
#define GPUSHARE_CELLS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A cell runs now. */
bool cells_running(void);
/* How often the last running cell has ended. */
uint64_t cells_ended(void);

void cells_after_fork(void);

#pragma GCC visibility pop
#endif
