/* Device addresses: one range of the process's address space, reserved without access, so that
 * host code that follows a device pointer faults. The bytes are elsewhere. */
#ifndef GPUSHARE_SIM_ADDRESS_H
#define GPUSHARE_SIM_ADDRESS_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Takes `bytes` of address space at a multiple of `alignment` (a power of two); at `wanted` when
 * that is free. 0 when there is none, and for no bytes. Addresses are reused as late as possible.
 */
uint64_t address_take(uint64_t bytes, uint64_t alignment, uint64_t wanted);

/* A small part of all addresses there are, for those who take more than they need. */
uint64_t address_share(void);

/* Gives back what address_take gave. */
void address_give(uint64_t address);

#pragma GCC visibility pop
#endif
