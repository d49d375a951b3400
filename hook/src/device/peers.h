/* Peer access that contexts have enabled. The driver applies it to its own allocations; for mapped
 * memory it has to be set on each mapping, again after each restore. LOCK_STREAMS guards the table,
 * which goes with the contexts. */
#pragma once

#include <cuda.h>
#include <stdbool.h>

/* The most devices that may reach another one. */
#define PEERS_MAX 63

/* Which other devices may use memory on the device. Returns how many. */
int peers_access(int device, CUmemAccessDesc accesses[], int max);

/* Whether the one may use memory on the other. */
bool peers_reach(int user, int owner);

CUmemAccessDesc peers_access_of(int device, CUmemAccess_flags flags);

/* Counts up with each change: who maps memory and enters it into the table of chunks behind that
 * sees by it whether the accesses that he has set are out of date. */
unsigned int peers_changes(void);

/* The current context may (not) reach memory of the other context from now on. True: the mappings
 * that are there have to be told. */
struct peers_change {
    int user, owner; /* devices */
};
bool peers_change(void *other_context, bool enables, struct peers_change *change);

/* With the table locked. */
void peers_forget_context(uint64_t context);

void peers_after_fork(void);
