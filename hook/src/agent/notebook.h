/* What the kernel's own Python has told (notebook.c): notebook cells, and what the user wants of
 * the scheduler by hand. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A cell runs now; and how often the last running cell has ended. */
bool notebook_cell_runs(uint64_t *times_ended);
/* Each answers true once for a wish. */
bool notebook_take_hold(uint32_t *hold_ms);
bool notebook_take_release(void);

void notebook_after_fork(void);
