/* What the mover does with one chunk, or with one copy that has ended. The mover's thread alone. */
#pragma once

#include "memory/physical.h"
#include "swap/copy_pipeline.h"
#include "swap/mover.h"

enum step_answer {
    STEP_DONE,      /* one step further */
    STEP_NO_CHUNK,  /* there was none, or it may stay where it is after all */
    STEP_NEW_GOAL,  /* the goal is another one; it says nothing of what there is */
    STEP_NO_HOST,   /* no host memory is ready for it */
    STEP_NO_SYSTEM, /* likewise, and it is the driver who would have to take it from the system */
    STEP_NO_ROOM,   /* the driver had no memory */
    STEP_FAILED,    /* the driver refused it for another reason */
    STEP_COPIED,    /* it stays, and has a host copy now */
};

/* Each gives the size of the chunk that it was about. */
enum step_answer step_leave(int device, uint64_t *bytes);
enum step_answer step_copy(int device, uint64_t *bytes);
enum step_answer step_come(int device, enum mover_goal goal, uint64_t *bytes);
enum step_answer step_unmap(int device, enum mover_goal goal, uint64_t *bytes);
/* What is parked for a device without a context is lost: it keeps nobody's gate shut, for nobody
 * has a budget for it any more. Whether there was any. */
bool step_lose(int device);

/* A copy has ended. STEP_FAILED: with an error; the chunk is where it was before. STEP_NO_ROOM: as
 * that, on the way in, because the driver had no memory. */
enum step_answer step_finish(struct flight *flight, int cu_result, enum mover_goal goal);

/* mover.c: claims a chunk, provided that the goal is still this one. STEP_DONE, STEP_NO_CHUNK or
 * STEP_NEW_GOAL. */
enum step_answer mover_claim(enum mover_goal goal, struct chunk *(*claim_locked)(int device),
                             int device, struct chunk **claimed);
/* The same for what is to become one allocation, of a restore; NULL as physical_whole_begin_locked.
 */
struct physical *mover_claim_whole(bool *later);
