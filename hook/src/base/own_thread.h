/* Threads of the library's own, beside the program's. */
#pragma once

#include <stdbool.h>

#define OWN_THREAD_STACK_BYTES (512 * 1024) /* room for the driver's own calls, and sanitizers' */

/* Starts `run` in a detached thread. Signals belong to the program's threads: it is born with all
 * of them blocked. */
bool own_thread_start(void *(*run)(void *), void *argument);
