/* Processes of other pid namespaces, as containers have them: a number there means another process
 * here, or none. Each process holds a lock on a byte of a file while it lives, and the operating
 * system says who holds it, in the numbers of whoever asks. Call all of this with the segment's
 * lock held. */
#ifndef GPUSHARE_SIM_ELSEWHERE_H
#define GPUSHARE_SIM_ELSEWHERE_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* This process's pid namespace; 0 where it cannot be told. */
uint32_t elsewhere_own_namespace(void);

/* Holds the byte of this row, in the machine's directory, until the process ends. A forked child
 * does not hold it. */
void elsewhere_hold(const char *directory, int row);

/* Whether a process holds the byte of this row. `*pid` is its number here, 0 where it has none. */
bool elsewhere_is_held(const char *directory, int row, uint32_t *pid);

#pragma GCC visibility pop

#endif
