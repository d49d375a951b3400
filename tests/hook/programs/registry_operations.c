/* Does to the registry what it reads, one operation a line, and prints what each answers, then the
 * sums of device 0. With one argument, a number: that many threads beat on the registry instead,
 * and the sums that are left are printed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/registry.h"

#define ROUNDS 20000
#define LIMIT_BYTES 1000

static struct allocation record(uint64_t space, uint64_t key, uint64_t bytes, uint64_t context) {
    return (struct allocation){
        .key = key,
        .bytes = bytes,
        .context = context,
        .space = (uint8_t)space,
    };
}

static uint64_t perform(const char *operation, uint64_t space, uint64_t key, uint64_t bytes,
                        uint64_t context) {
    const struct allocation fresh = record(space, key, bytes, context);
    struct allocation removed;
    const enum registry_space in = (enum registry_space)space;
    if (strcmp(operation, "add") == 0) return registry_add(&fresh);
    if (strcmp(operation, "take") == 0) return registry_take(in, key, &removed);
    if (strcmp(operation, "find") == 0) return registry_find(in, key, &removed);
    registry_drop_context(context);
    return 0;
}

static void *beat(void *argument) {
    unsigned int seed = (unsigned int)(uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t key = (uint64_t)rand_r(&seed) % 4096 + ((uint64_t)seed << 32);
        if (!registry_claim(0, 10, LIMIT_BYTES)) continue;
        const struct allocation allocation = record(REGISTRY_ADDRESS, key, 10, 0);
        struct allocation taken;
        registry_keep(&allocation, 10);
        registry_take(REGISTRY_ADDRESS, key, &taken);
    }
    return NULL;
}

static void print_sums(void) {
    const struct registry_sums sums = registry_sums_of(0);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sums.bytes_allocated, sums.bytes_claimed,
           sums.bytes_fixed);
}

int main(int argc, char **argv) {
    if (argc == 2) {
        pthread_t threads[64];
        const int count = atoi(argv[1]) < 64 ? atoi(argv[1]) : 64;
        for (int i = 0; i < count; i++)
            pthread_create(&threads[i], NULL, beat, (void *)(uintptr_t)(i + 1));
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    }
    char operation[16];
    uint64_t space, key, bytes, context;
    while (argc == 1 && scanf("%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, operation,
                              &space, &key, &bytes, &context) == 5)
        printf("%" PRIu64 "\n", perform(operation, space, key, bytes, context));
    print_sums();
    return 0;
}
