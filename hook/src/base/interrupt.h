/* SIGINT while a call waits at the gate. The process's own disposition is replaced only for that
 * time, by a handler that cancels the waits and then does what the process wanted. */
#pragma once

/* A call begins to wait; counted, so several threads may. Or it has done so, and its wait has been
 * let go (wait.h). */
void interrupt_watch(void);
void interrupt_unwatch(void);

/* In a child after fork: the disposition is the parent's own again. */
void interrupt_after_fork(void);
