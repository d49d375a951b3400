#include "base/namespaces.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic bool expected;

void namespaces_expect(void) {
    atomic_store(&expected, true);
}

/* "7f..-7f.. r--p 00000000 08:01 1234  /usr/lib/libcuda.so.580.1": the first piece of a library. */
static bool begins_driver(const char *line) {
    unsigned long long from, to, offset;
    const char *path = strchr(line, '/');
    const char *name = path ? strrchr(path, '/') + 1 : "";
    return strncmp(name, "libcuda.so", 10) == 0 &&
           sscanf(line, "%llx-%llx %*s %llx", &from, &to, &offset) == 3 && offset == 0;
}

/* The linker loads a library once in each namespace. It tells nobody of the others. */
bool namespaces_have_driver(void) {
    if (!atomic_load(&expected)) return false;
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    int drivers = 0;
    while (maps && getline(&line, &room, maps) > 0)
        drivers += begins_driver(line);
    free(line);
    if (maps) fclose(maps);
    return drivers > 1;
}
