/* The thread that parks and restores (decisions/0007). Started when something first has to move. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum mover_goal {
    MOVER_REST, /* move nothing; prepare host memory where that is worth it */
    MOVER_PARK, /* no turn, the gate is shut and drained: park what is above the budgets, or bring
                   back ahead of the turn what they reach for (decisions/0017) */
    MOVER_RESTORE, /* a turn was granted: bring all back */
};

/* The agent's. Takes effect within a chunk. */
void mover_set_goal(enum mover_goal goal);
/* Budgets or settings have changed: look again. */
void mover_look(void);
/* Memory was freed, by any thread: a restore may be at its end, its budget reach further, or what
 * has to leave have become less. */
void mover_freed(void);
/* The restore is at its end, and nothing is to be made one allocation: from now on the goal is to
 * rest. False: it is not, and goes on. */
bool mover_end_restore(void);
/* The restore failed, was rolled back, and waits for another goal. */
bool mover_gave_up(void);

/* False where no thread could be started: then nothing is ever parked. */
bool mover_can_run(void);
/* Its goal is still to bring all back. */
bool mover_restores(void);

/* A context is about to end: nothing of the mover is in it any more when this returns. */
void mover_forget_context(void *context);

void mover_after_fork(void);
