/* Makes the pages of fresh memory real, by several threads that live for just that long. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PREFAULT_THREADS_MAX 8

struct prefault {
    struct prefault_part {
        char *address;
        uint64_t bytes;
        pthread_t thread;
        bool has_thread;
        bool failed;
    } parts[PREFAULT_THREADS_MAX];
    int parts_used;
};

/* Addresses on the border of a huge page, for this process alone; nothing is taken from the system
 * yet. NULL: there are none. */
char *prefault_map(uint64_t bytes);
/* Begins with [address, address + bytes), a multiple of 2 MiB that starts at one. */
void prefault_begin(struct prefault *work, void *address, uint64_t bytes);
/* Waits for the end. False: the system has no pages for all of it. */
bool prefault_end(struct prefault *work);
