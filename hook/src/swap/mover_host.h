/* Host memory for the mover: more of it while a park goes on, some ahead of need, and back when
 * nobody needs it. The mover's thread alone. */
#pragma once

#include "swap/mover.h"

#define MOVER_HOST_NEVER UINT64_MAX

/* A chunk of this device found no host memory ready: for it and those behind it so much is wanted.
 */
void mover_host_want(int device, uint64_t chunk_bytes, uint64_t bytes);
/* One that needs none of ours found that the system has none. */
void mover_host_lacks(void);
/* It is wanted, or was not to be had a moment ago. */
bool mover_host_is_short(void);
/* Host copies of what is back may keep others from making room for the rest. */
bool mover_host_is_tight(void);
/* The system leaves little, or copies ahead of need on this device are of no use: they go. */
bool mover_host_ends_copies(int device);
/* Tries again what was not to be had, and counts anew for how long there has been too much, if
 * there was not before. */
void mover_host_goal_changed(void);

/* By any thread: chunks_confirm_back, of the arena's memory. */
void mover_host_confirm(int device, bool copied_alone);

enum mover_host_answer {
    MOVER_HOST_DONE,  /* nothing to do */
    MOVER_HOST_MORE,  /* a segment was made ready: look at once what follows */
    MOVER_HOST_SHORT, /* what is wanted is not to be had */
};

/* Does the next thing; a segment at a time, so that the mover can see to its copies. */
enum mover_host_answer mover_host_look(enum mover_goal goal);
/* When to come again. */
uint64_t mover_host_pause_ns(enum mover_goal goal);

void mover_host_after_fork(void);
