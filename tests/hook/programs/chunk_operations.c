/* Does to the table of chunks what it reads, one operation a line, and prints what each answers and
 * the sums of device 0. With one argument, a number: that many threads allocate and free while two
 * movers park and restore, and the sums that are left are printed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory/chunks.h"

#define ROUNDS 3000
#define CHUNKS_MAX 8
#define SECOND_NS ((uint64_t)1000000000)
#define SPAN ((uint64_t)CHUNKS_MAX * CHUNK_GRANULE)

static int host_given;

static void give(void *host, uint64_t bytes) {
    (void)bytes;
    host_given += host != NULL;
}

static bool add(uint64_t address, size_t count) {
    struct chunk chunks[CHUNKS_MAX];
    for (size_t i = 0; i < count; i++)
        chunks[i] = (struct chunk){.address = address + i * CHUNK_GRANULE,
                                   .bytes = CHUNK_GRANULE,
                                   .handle = address + i * CHUNK_GRANULE + 1};
    return chunks_add(chunks, count);
}

static uint64_t address_if(bool claimed, const struct chunk *chunk) {
    return claimed ? chunk->address : 0;
}

static uint64_t free_span(uint64_t address, uint64_t bytes) {
    struct chunk claimed[CHUNKS_MAX];
    const size_t count = chunks_claim_for_free(address, bytes, claimed, CHUNKS_MAX);
    chunks_remove(address, bytes);
    return count;
}

/* A chunk that another thread holds for a call of the driver, which takes a while. */
static struct chunk held;
static enum chunk_state held_was;
static pthread_t holder;

static void *end_hold(void *nothing) {
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    chunks_settle(held.address, held_was, held.handle, held.host);
    return nothing;
}

static uint64_t begin_hold(uint64_t address) {
    if (!chunks_hold_next(0, &address, &held, &held_was)) return 0;
    pthread_create(&holder, NULL, end_hold, NULL);
    return held.address;
}

/* The driver would not unmap its device memory, or not take it back. */
static void settle_away(uint64_t address, enum chunk_state state, bool unmapped) {
    const struct chunk chunk = {
        .address = address, .handle = address + 1, .host = &host_given, .unmapped = unmapped};
    chunks_settle_away(&chunk, state);
}

static uint64_t perform(const char *operation, uint64_t address, uint64_t count) {
    struct chunk chunk = {0};
    if (strcmp(operation, "add") == 0) return add(address, count);
    if (strcmp(operation, "free") == 0) return free_span(address, count * CHUNK_GRANULE);
    if (strcmp(operation, "fix") == 0) return chunks_fix(address, count * CHUNK_GRANULE);
    if (strcmp(operation, "leaving") == 0)
        return address_if(chunks_claim_leaving(0, &chunk), &chunk);
    if (strcmp(operation, "coming") == 0) return address_if(chunks_claim_coming(0, &chunk), &chunk);
    if (strcmp(operation, "undo") == 0) return address_if(chunks_claim_back(0, &chunk), &chunk);
    if (strcmp(operation, "let_go") == 0) return chunks_let_go(count * SECOND_NS);
    if (strcmp(operation, "failed") == 0)
        chunks_settle_failed(address, address + 1, count * SECOND_NS);
    else if (strcmp(operation, "parked") == 0)
        chunks_settle(address, CHUNK_PARKED, 0, &host_given);
    else if (strcmp(operation, "unmapped") == 0)
        settle_away(address, CHUNK_PARKED, true);
    else if (strcmp(operation, "stuck") == 0)
        settle_away(address, CHUNK_PARKED, false);
    else if (strcmp(operation, "buried") == 0)
        chunks_settle_away(&(struct chunk){.address = address, .host = &host_given}, CHUNK_FREEING);
    else if (strcmp(operation, "back") == 0)
        chunks_settle(address, CHUNK_BACK, address + 1, &host_given);
    else if (strcmp(operation, "resident") == 0)
        chunks_settle(address, CHUNK_RESIDENT, address + 1, NULL);
    else if (strcmp(operation, "hold") == 0)
        return begin_hold(address);
    else if (strcmp(operation, "held") == 0)
        pthread_join(holder, NULL);
    else if (strcmp(operation, "confirm") == 0)
        chunks_confirm_back(0, give);
    return 0;
}

static void print_sums(void) {
    const struct chunk_sums sums = chunks_sums_of(0);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32
           " %" PRIu32 " %" PRIu32 " %d %d %d\n",
           sums.bytes_resident / CHUNK_GRANULE, sums.bytes_movable / CHUNK_GRANULE,
           sums.bytes_parked / CHUNK_GRANULE, sums.bytes_to_come / CHUNK_GRANULE, sums.moving,
           sums.to_leave, sums.to_come, sums.to_take_back, sums.copies, (int)chunks_all_here(),
           (int)chunks_all_confirmed(), host_given);
}

/* What each chunk of the race holds. Not atomic: whoever has claimed it is alone, which the thread
 * sanitizer checks. */
#define RACE_BASE ((uint64_t)1 << 40)
#define RACE_CHUNKS (64 * CHUNKS_MAX)
static int owners[RACE_CHUNKS];
static _Atomic bool over;

static void use(uint64_t address) {
    owners[(address - RACE_BASE) / CHUNK_GRANULE]++;
}

static void *allocate_and_free(void *argument) {
    const uint64_t address = RACE_BASE + (uint64_t)(uintptr_t)argument * SPAN;
    struct chunk claimed[CHUNKS_MAX];
    for (int i = 0; i < ROUNDS; i++) {
        const size_t count = 1 + (size_t)i % CHUNKS_MAX;
        if (!add(address, count)) return NULL;
        const size_t got = chunks_claim_for_free(address, SPAN, claimed, CHUNKS_MAX);
        if (got != count) fprintf(stderr, "claimed %zu of %zu\n", got, count);
        for (size_t j = 0; j < got; j++)
            use(claimed[j].address);
        chunks_remove(address, SPAN);
    }
    return NULL;
}

static void *park_and_restore(void *argument) {
    struct chunk chunk;
    while (!atomic_load(&over)) {
        if (chunks_claim_leaving(0, &chunk)) {
            use(chunk.address);
            chunks_settle(chunk.address, CHUNK_PARKED, 0, argument);
        }
        if (chunks_claim_coming(0, &chunk)) {
            use(chunk.address);
            chunks_settle(chunk.address, CHUNK_BACK, chunk.address + 1, argument);
        }
        if (chunks_claim_back(0, &chunk)) {
            use(chunk.address);
            chunks_settle(chunk.address, CHUNK_RESIDENT, chunk.address + 1, NULL);
        }
    }
    return NULL;
}

static void *hold(void *argument) {
    while (!atomic_load(&over)) {
        struct chunk chunk;
        enum chunk_state was;
        for (uint64_t from = 0; chunks_hold_next(0, &from, &chunk, &was);) {
            use(chunk.address);
            chunks_settle(chunk.address, was, chunk.handle, chunk.host);
        }
    }
    return argument;
}

static void race(int count) {
    static int host_memory;
    pthread_t allocating[64], moving[3];
    pthread_create(&moving[0], NULL, park_and_restore, &host_memory);
    pthread_create(&moving[1], NULL, park_and_restore, &host_memory);
    pthread_create(&moving[2], NULL, hold, NULL);
    for (int i = 0; i < count; i++)
        pthread_create(&allocating[i], NULL, allocate_and_free, (void *)(uintptr_t)i);
    for (int i = 0; i < count; i++)
        pthread_join(allocating[i], NULL);
    atomic_store(&over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(moving[i], NULL);
}

int main(int argc, char **argv) {
    if (argc == 2) race(atoi(argv[1]) < 64 ? atoi(argv[1]) : 64);
    char operation[16];
    uint64_t address, count;
    while (argc == 1 && scanf("%15s %" SCNu64 " %" SCNu64, operation, &address, &count) == 3) {
        printf("%" PRIu64 " ", perform(operation, address, count));
        print_sums();
    }
    print_sums();
    return 0;
}
