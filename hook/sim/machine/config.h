/* Parameters of a simulated machine: a `config` file of key=value lines in its directory, written
 * from GPUSHARE_SIM_* by whoever creates the machine. */
#ifndef GPUSHARE_SIM_CONFIG_H
#define GPUSHARE_SIM_CONFIG_H

#include "machine/segment.h"

#pragma GCC visibility push(hidden)

/* Reads `directory`/config, or writes it from the environment when it is missing. */
void config_load(const char *directory, struct sim_config *config);

#pragma GCC visibility pop
#endif
