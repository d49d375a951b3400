/* Does to the table of pages what it reads, one operation a line: enters a mapping of so many
 * pages, lets the one that is at an address go, or asks for it. Prints the address of what is
 * there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "memory/pages.h"

#define MAPPINGS_MAX 4096

static struct mapping mappings[MAPPINGS_MAX];
static size_t mappings_used;

static uint64_t enter(uint64_t address, uint64_t pages) {
    struct mapping *mapping = &mappings[mappings_used++ % MAPPINGS_MAX];
    *mapping = (struct mapping){.address = address, .bytes = pages * PAGE_BYTES};
    return pages_enter(mapping) ? address : 0;
}

static uint64_t leave(struct mapping *mapping) {
    if (mapping == NULL) return 0;
    pages_leave(mapping);
    return mapping->address;
}

int main(void) {
    char operation[16];
    uint64_t address, pages;
    while (scanf("%15s %" SCNu64 " %" SCNu64, operation, &address, &pages) == 3) {
        struct mapping *found = pages_find(address);
        uint64_t answer = found != NULL ? found->address : 0;
        if (strcmp(operation, "enter") == 0) answer = enter(address, pages);
        if (strcmp(operation, "leave") == 0) answer = leave(found);
        if (strcmp(operation, "fork") == 0) pages_after_fork();
        printf("%" PRIu64 "\n", answer);
    }
    return 0;
}
