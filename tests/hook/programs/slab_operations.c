/* Does to a slab what it reads, one operation a line: "take BYTES" prints the offset (or -1),
 * "find OFFSET" start, bytes and id of the allocation there (or -1), "give OFFSET" the units that
 * are used then. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "memory/slab.h"

int main(void) {
    static struct slab slab;
    char operation[8];
    uint64_t number, id = 0;
    while (scanf("%7s %" SCNu64, operation, &number) == 2) {
        uint64_t offset;
        if (strcmp(operation, "take") == 0) {
            if (slab_take(&slab, (uint32_t)number, ++id, &offset))
                printf("%" PRIu64 "\n", offset);
            else
                printf("-1\n");
        } else if (strcmp(operation, "find") == 0) {
            const struct slab_entry *entry = slab_find(&slab, number, &offset);
            if (entry != NULL)
                printf("%" PRIu64 " %" PRIu32 " %" PRIu64 "\n", offset, entry->bytes, entry->id);
            else
                printf("-1\n");
        } else {
            slab_give(&slab, number);
            printf("%" PRIu32 "\n", slab.units_used);
        }
    }
    return 0;
}
