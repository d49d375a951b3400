#include "memory/peer_mappings.h"

#include "base/driver.h"
#include "base/log.h"
#include "device/peers.h"
#include "memory/blocks.h"

#define LISTED_AT_ONCE 64

/* A block that is made meanwhile is given the accesses as they are then. */
static void tell_mappings(const struct peers_change *change, CUmemAccess_flags flags) {
    const struct driver *cuda = driver_get();
    const CUmemAccessDesc access = peers_access_of(change->user, flags);
    struct block_range blocks[LISTED_AT_ONCE];
    uint64_t after = 0;
    size_t count;
    while ((count = blocks_list(change->owner, after, blocks, LISTED_AT_ONCE)) > 0) {
        for (size_t i = 0; i < count; i++) {
            const CUresult result =
                cuda->memory_set_access(blocks[i].address, blocks[i].bytes, &access, 1);
            if (result != CUDA_SUCCESS)
                log_debug("peer access of device %d to memory of device %d: error %d", change->user,
                          change->owner, (int)result);
        }
        after = blocks[count - 1].id;
    }
}

void peer_mappings_change(void *other_context, bool enables) {
    struct peers_change change;
    if (peers_change(other_context, enables, &change))
        tell_mappings(&change,
                      enables ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
}
