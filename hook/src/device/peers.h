/* Peer access that contexts have enabled. The driver applies it to its own allocations; for mapped
 * memory it has to be set on each mapping, again after each restore. LOCK_PEERS guards the table.
 */
#ifndef GPUSHARE_PEERS_H
#define GPUSHARE_PEERS_H

#include <cuda.h>

#pragma GCC visibility push(hidden)

/* The most devices that may reach another one. */
#define PEERS_MAX 63

/* Which other devices may use memory on the device. Returns how many. */
int peers_access(int device, CUmemAccessDesc accesses[], int max);

CUmemAccessDesc peers_access_of(int device, CUmemAccess_flags flags);

/* Counts up with each change: who maps memory and enters it into the table of chunks behind that
 * sees by it whether the accesses that he has set are out of date. */
unsigned int peers_changes(void);

/* The current context may (not) reach memory of the other context from now on: tells the mappings
 * that are there. */
void peers_enabled(void *other_context);
void peers_disabled(void *other_context);

void peers_forget_context(void *context);
void peers_after_fork(void);

#pragma GCC visibility pop
#endif
