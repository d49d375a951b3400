/* Reserved addresses, mapped or not. */
#ifndef GPUSHARE_SIM_MAPPING_H
#define GPUSHARE_SIM_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The reservation that an address lies in; false when it is not reserved. */
bool mapping_reservation(uint64_t address, uint64_t *start, uint64_t *bytes);

#pragma GCC visibility pop
#endif
