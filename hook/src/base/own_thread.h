/* Threads of the library's own, beside the program's. */
#ifndef GPUSHARE_OWN_THREAD_H
#define GPUSHARE_OWN_THREAD_H

#include <stdbool.h>

#define OWN_THREAD_STACK_BYTES (512 * 1024) /* room for the driver's own calls, and sanitizers' */

#pragma GCC visibility push(hidden)

/* Starts `run` in a detached thread. Signals belong to the program's threads: it is born with all
 * of them blocked. */
bool own_thread_start(void *(*run)(void *), void *argument);

#pragma GCC visibility pop
#endif
