/* What the kernel's own Python tells (surface/exports.c): notebook cells, and what the user wants
 * of the scheduler by hand. None of these blocks; the agent acts on them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void notebook_cell_began(void);
void notebook_cell_ended(void);
/* A wish waits until there is a scheduler to tell it to; a later one of its kind replaces it. */
void notebook_wish_hold(uint32_t hold_ms);
void notebook_wish_release(void);

/* ---- for the agent ---- */

/* A cell runs now. */
bool notebook_cell_runs(void);
/* How often the last running cell has ended. */
uint64_t notebook_cells_ended(void);
/* Each answers true once for a wish. */
bool notebook_take_hold(uint32_t *hold_ms);
bool notebook_take_release(void);

void notebook_after_fork(void);
