/* Forks and the end of the process. */
#ifndef GPUSHARE_FORK_H
#define GPUSHARE_FORK_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* Registers what is to happen at fork and exit; once, when the agent starts first. */
void fork_watch(void);

/* While the process is ending, our threads must not call the driver any more. They bracket their
 * calls of it with these; `_begin` is false when they have to leave them out. */
bool fork_driver_use_begin(void);
void fork_driver_use_end(void);

/* The handlers of exit run: our threads have left the driver alone since. */
bool fork_process_ends(void);

#pragma GCC visibility pop
#endif
