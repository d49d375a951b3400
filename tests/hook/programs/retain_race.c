/* Two threads retain one handle at once that nobody holds, and release it. Prints the bytes that
 * count while its memory is mapped, and in the end. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "allocate/memory.h"
#include "allocate/physical.h"
#include "base/locks.h"

#define HANDLE 7
#define ADDRESS ((uint64_t)1 << 40)
#define BYTES ((uint64_t)2 << 20)

static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static _Thread_local bool meets;

void lock_take(enum runtime_lock lock) {
    (void)lock;
    pthread_mutex_lock(&memory);
}

/* After its first look a thread waits until the other one has looked too. */
void lock_release(enum runtime_lock lock) {
    (void)lock;
    pthread_mutex_unlock(&memory);
    const bool waits = meets;
    meets = false;
    if (waits) pthread_barrier_wait(&both);
}

void memory_unclaim(const struct memory_claim *claim) {
    (void)claim;
}

void memory_claim_ended(const struct memory_claim *claim) {
    (void)claim;
}

void memory_tell(int device) {
    (void)device;
}

static void *retain(void *argument) {
    meets = true;
    physical_retained(HANDLE, ADDRESS);
    return argument;
}

static void print_bytes(void) {
    printf("%" PRIu64 "\n", registry_sums_of(0).bytes_allocated);
}

int main(void) {
    const struct memory_claim claim = {.device = 0, .bytes = BYTES};
    pthread_t threads[2];
    physical_created(&claim, HANDLE);
    physical_mapped(ADDRESS, BYTES, HANDLE);
    physical_releasing(HANDLE);
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, retain, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    physical_unmapping(ADDRESS, BYTES);
    physical_releasing(HANDLE);
    print_bytes();
    physical_releasing(HANDLE);
    print_bytes();
    return 0;
}
