#include "memory/peer_mappings.h"

#include <stdint.h>

#include "base/driver.h"
#include "base/log.h"
#include "device/peers.h"
#include "memory/chunks.h"

/* Chunks that are in host memory get it when they are mapped again. */
static void tell_mappings(const struct peers_change *change, CUmemAccess_flags flags) {
    const struct driver *cuda = driver_get();
    const CUmemAccessDesc access = peers_access_of(change->user, flags);
    struct chunk chunk;
    enum chunk_state was;
    for (uint64_t from = 0; chunks_hold_next(change->owner, &from, &chunk, &was);) {
        const CUresult result = cuda->memory_set_access(chunk.address, chunk.bytes, &access, 1);
        chunks_settle(chunk.address, was, chunk.handle, chunk.host);
        if (result != CUDA_SUCCESS)
            log_debug("peer access of device %d to memory of device %d: error %d", change->user,
                      change->owner, (int)result);
    }
}

void peer_mappings_change(void *other_context, bool enables) {
    struct peers_change change;
    if (peers_change(other_context, enables, &change))
        tell_mappings(&change,
                      enables ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
}
