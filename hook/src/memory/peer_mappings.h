/* Peer access that changes while memory is mapped. */
#ifndef GPUSHARE_PEER_MAPPINGS_H
#define GPUSHARE_PEER_MAPPINGS_H

#pragma GCC visibility push(hidden)

/* The current context may (not) reach memory of the other context from now on. */
void peer_mappings_enabled(void *other_context);
void peer_mappings_disabled(void *other_context);

#pragma GCC visibility pop
#endif
