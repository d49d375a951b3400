/* Memory of several parts that somebody wants to be one allocation loses its last handle. Prints
 * whether it is still made one then, and whether a second thread is told to give it back. */
#include <stdio.h>

#include "base/locks.h"
#include "memory/blocks.h"
#include "memory/physical.h"

uint64_t blocks_next_id(void) {
    return 1;
}

static struct physical *made(uint64_t *number) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    const uint64_t bytes = 2 * CHUNK_BYTES_MAX;
    struct physical *physical = physical_new(&properties, bytes, false);
    if (physical == NULL || !registry_claim(0, bytes, UINT64_MAX)) return NULL;
    for (size_t i = 0; i < physical->part_count; i++)
        physical->parts[i].chunk.handle = i + 1;
    return physical_enter(physical, number) ? physical : NULL;
}

int main(void) {
    uint64_t number;
    bool later;
    struct physical *physical = made(&number), *unused = NULL;
    if (physical == NULL || physical_whole(number, true) != WHOLE_WANTED) return 1;
    if (!physical_release(number, &unused) || unused != physical) return 1;
    lock_take(LOCK_MEMORY);
    struct physical *begun = physical_whole_begin_locked(&later);
    lock_release(LOCK_MEMORY);
    if (begun != NULL) physical_whole_end(begun, WHOLE_STAYS);
    printf("%d %d\n", begun != NULL, physical_take_unused() != NULL);
    physical_remove(unused);
    return physical_whole(number, false) != WHOLE_GONE || physical_whole_wanted();
}
