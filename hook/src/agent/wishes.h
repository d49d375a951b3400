/* What the user has asked of the scheduler by hand (exports.c has it from the notebook). A wish
 * waits until there is a scheduler to tell it to; a later one of its kind replaces it. */
#ifndef GPUSHARE_WISHES_H
#define GPUSHARE_WISHES_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Each answers true once for a wish. */
bool wishes_take_hold(uint32_t *hold_ms);
bool wishes_take_release(void);

void wishes_after_fork(void);

#pragma GCC visibility pop
#endif
