/* Memory that programs map themselves and whose parts move one by one becomes one allocation of the
 * driver's, when somebody needs one handle for it (decisions/0022): its contents wait in host
 * memory meanwhile, and afterwards it stays where it is. Done by the mover, while the gate is shut
 * and the work drained. */
#pragma once

#include "memory/physical.h"

/* Asks for it and waits until it is so, or cannot be; WHOLE_WANTED: the wait was cancelled. Not
 * inside the gate. */
enum physical_whole wholes_make(uint64_t number, const char *call_name);
/* The gate cannot be shut for that: whoever waits is told so. */
void wholes_refuse(void);

/* For the mover: makes the next one. False: there is none; `*later`: but one that cannot be made
 * yet. The calling thread uses the driver, and wakes those that wait (wait_wake_all) when the agent
 * has heard that all is back: else it would give the turn back that nobody seems to want. */
bool wholes_step(bool *later);
