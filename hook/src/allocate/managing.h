/* Managed memory (cuMemAllocManaged): the driver makes and frees it, and the mover prefetches it to
 * the host and back. */
#pragma once

#include "allocate/memory.h"
#include "memory/managed.h"

/* The driver has allocated it with this claim: it moves from now on where that is possible, and is
 * fixed where it is not. */
void managing_keep(const struct memory_claim *claim, uint64_t address, uint64_t bytes);

/* Around the driver's free: from its beginning nothing of it moves. NULL: it is none that moves. */
struct managed *managing_free_begins(uint64_t address);
void managing_free_ended(struct managed *managed, int cu_result);

/* The program is about to give advice. Of memory that is mostly read the device keeps its copy when
 * another one is made on the host, so it stays from then on. Passes the gate for that. True: the
 * wait there was cancelled. */
bool managing_advice_fails(uint64_t address, uint64_t bytes, int advice, const char *call_name,
                           int *cu_result);

/* The context is gone, and its memory with it. */
void managing_context_ended(uint64_t generation);
