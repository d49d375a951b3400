/* The fault plan: named, deterministic failures. Read once, by cuInit, from $GPUSHARE_SIM_FAULTS
 * (lines separated by newlines or semicolons) or else from the file `faults` in the machine's
 * directory.
 *
 *   fail  CALL nth=N result=R [times=T] [pid=P]   the Nth such call (1: the first) answers R
 *   stall CALL nth=N ms=M [times=T] [pid=P]       the Nth such call takes M ms longer
 *   lose  device=D call=CALL nth=N [pid=P]        device D is gone from that call on
 *
 * CALL is a base name (cuMemCreate, cuMemcpyHtoDAsync): every ABI version and stream variant
 * counts. N counts per process and per line; T (default 1, 0 for ever) is how often it happens.
 * Lines with a pid count in that process alone.
 *
 *   hold  CALL nth=N until=FILE [times=T]         the Nth such call takes until FILE is there
 *
 * FILE lies in the machine's directory; `FILE.held` there tells that a call is held. Every line may
 * have `thread=NAME` (only calls of threads of that name count), `from=FILE` (none counts before
 * FILE is there) and `until=FILE` (none counts from then on), so that a test says exactly when what
 * happens. */
#ifndef GPUSHARE_SIM_FAULTS_H
#define GPUSHARE_SIM_FAULTS_H

#include <stdbool.h>

#define SIM_ENV_FAULTS "GPUSHARE_SIM_FAULTS"

#pragma GCC visibility push(hidden)

/* True when there is a plan for this process. */
bool faults_load(const char *directory);

/* Counts the call; returns the CUresult that it is to fail with, or 0. May sleep. */
int faults_check(const char *base_name);

#pragma GCC visibility pop
#endif
