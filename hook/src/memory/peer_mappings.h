/* Peer access that changes while memory is mapped. */
#pragma once

/* The current context may (not) reach memory of the other context from now on. */
void peer_mappings_enabled(void *other_context);
void peer_mappings_disabled(void *other_context);
