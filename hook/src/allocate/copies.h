/* Copies that the driver refuses because of where our memory is mapped. A plain allocation can be
 * copied in the context of any device; mapped memory only where it is mapped for that device. A
 * copy that names the context of each end works, so a refused one that has an end in a block of
 * ours is made so.
 *
 * A captured copy, or one in a graph, cannot name contexts: there the refusal stands, and so it
 * does for copies of arrays by offset, for batches, and for copies with attributes. */
#pragma once

#include <cuda.h>

#include "gate/gate.h"

/* How the refused call goes about it. */
struct copies_way {
    bool in_stream; /* it has a stream, and may return before it is done */
    enum gate_stream_variant variant;
    CUstream stream;
};

/* The driver has answered CUDA_ERROR_INVALID_VALUE to a copy of so many bytes, or of a box, and the
 * calling thread is still inside the gate. What the call answers. */
CUresult copies_line(uint64_t to, uint64_t from, uint64_t bytes, struct copies_way way);
CUresult copies_flat(const CUDA_MEMCPY2D *flat, struct copies_way way);
CUresult copies_box(const CUDA_MEMCPY3D *box, struct copies_way way);

/* While the process ends and any of its memory is away, a copy to the host, without turn and gate:
 * what is saved of memory that is parked, or was on its way, comes from where it is whole. True: it
 * was made, with this result. False: it is another copy, or all memory is here. */
bool copies_saved_line(uint64_t to, uint64_t from, uint64_t bytes, struct copies_way way,
                       int *cu_result);
bool copies_saved_flat(const CUDA_MEMCPY2D *flat, struct copies_way way, int *cu_result);
bool copies_saved_box(const CUDA_MEMCPY3D *box, struct copies_way way, int *cu_result);
