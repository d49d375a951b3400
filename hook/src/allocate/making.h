/* How memory of ours is made: claim, gate, make, and again while others make room. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#include "memory/chunks.h"

/* `make` may answer so where there is no host memory for our tables: no room on the device would
 * help. The program is answered with out-of-memory. */
#define MAKING_NO_HOST_MEMORY ((CUresult) - 1)

struct making {
    const char *call_name;
    int device;
    uint64_t bytes; /* to be claimed, and counted by `make` when it succeeds */
    CUresult (*make)(void *argument);
    void *argument;
};

CUresult making_run(const struct making *making);

/* Gives back what a chunk has, on the device and on the host: it was claimed for that, or is in no
 * table. */
void making_drop_chunk(struct chunk *chunk);
