/* The end of the process, as far as our threads' use of the driver goes. agent/lifetime.c says what
 * happens then, and at a fork. */
#pragma once

#include <stdbool.h>

/* While the process is ending, our threads must not call the driver any more. They bracket their
 * calls of it with these; `_begin` is false when they have to leave them out. */
bool ending_driver_use_begin(void);
void ending_driver_use_end(void);

/* The handlers of exit run: our threads leave the driver alone from now on. */
bool ending_has_begun(void);

/* For lifetime.c. */
void ending_begins(void);
void ending_await_driver_users(void);
void ending_after_fork(void);
