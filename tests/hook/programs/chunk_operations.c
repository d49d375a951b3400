/* Does to the chunks of device 0 what it reads, one operation a line, and prints what each answers
 * and the sums. A chunk is named by its place, below CHUNKS. With one argument, a number: that many
 * threads allocate and free while two movers park and restore, and the sums that are left are
 * printed. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/locks.h"
#include "memory/blocks.h"
#include "memory/chunks.h"

#define ROUNDS 6000
#define CHUNKS 64
#define CHUNKS_OF_THREAD 8
#define SECOND_NS ((uint64_t)1000000000)
#define NONE UINT64_MAX

static struct piece pieces[64 * CHUNKS_OF_THREAD];
static int host_given;

static void give(void *host, uint64_t bytes) {
    (void)bytes;
    host_given += host != NULL;
}

static void add(struct piece *piece, uint64_t managed_at) {
    piece->mapping.bytes = CHUNK_GRANULE;
    piece->chunk = (struct chunk){.mappings = &piece->mapping,
                                  .bytes = CHUNK_GRANULE,
                                  .handle = 1,
                                  .managed_at = managed_at,
                                  .state = CHUNK_RESIDENT};
    lock_take(LOCK_MEMORY);
    chunks_enter_locked(&piece->chunk);
    lock_release(LOCK_MEMORY);
}

static void leave(struct piece *piece) {
    lock_take(LOCK_MEMORY);
    chunks_leave_locked(&piece->chunk);
    lock_release(LOCK_MEMORY);
}

static struct chunk *claimed(struct chunk *(*claim_locked)(int device)) {
    lock_take(LOCK_MEMORY);
    struct chunk *chunk = claim_locked(0);
    lock_release(LOCK_MEMORY);
    return chunk;
}

static uint64_t place_of(const struct chunk *chunk) {
    if (chunk == NULL) return NONE;
    return (uint64_t)((const struct piece *)chunk->mappings - pieces);
}

static void settle(struct chunk *chunk, enum chunk_state state, uint64_t handle, void *host) {
    chunk->handle = handle;
    chunk->host = host;
    chunks_settle(chunk, state);
}

static void settle_copied(struct chunk *chunk, void *host) {
    chunk->host = host;
    chunks_settle_copied(chunk);
}

static uint64_t perform(const char *operation, uint64_t place, uint64_t seconds) {
    struct chunk *chunk = &pieces[place % CHUNKS].chunk;
    if (strcmp(operation, "leaving") == 0) return place_of(claimed(chunks_claim_leaving_locked));
    if (strcmp(operation, "coming") == 0) return place_of(claimed(chunks_claim_coming_locked));
    if (strcmp(operation, "undo") == 0) return place_of(claimed(chunks_claim_back_locked));
    if (strcmp(operation, "copying") == 0) return place_of(claimed(chunks_claim_copying_locked));
    if (strcmp(operation, "let_go") == 0) return chunks_let_go(seconds * SECOND_NS);
    if (strcmp(operation, "add") == 0) {
        add(&pieces[place], 0);
    } else if (strcmp(operation, "manage") == 0) {
        add(&pieces[place], CHUNK_GRANULE);
    } else if (strcmp(operation, "free") == 0) {
        if (!chunks_claim_for_free(chunk)) return NONE;
        leave(&pieces[place]);
    } else if (strcmp(operation, "fix") == 0) {
        lock_take(LOCK_MEMORY);
        chunks_fix_locked(chunk);
        lock_release(LOCK_MEMORY);
    } else if (strcmp(operation, "failed") == 0) {
        chunk->host = NULL;
        chunks_settle_failed(chunk, seconds * SECOND_NS);
    } else if (strcmp(operation, "hopeless") == 0) {
        chunk->host = NULL;
        chunks_settle_fixed(chunk);
    } else if (strcmp(operation, "parked") == 0) {
        settle(chunk, CHUNK_PARKED, 0, &host_given);
    } else if (strcmp(operation, "stuck") == 0) {
        settle(chunk, CHUNK_PARKED, 1, &host_given);
    } else if (strcmp(operation, "buried") == 0) {
        settle(chunk, CHUNK_FREEING, 0, &host_given);
    } else if (strcmp(operation, "back") == 0) {
        settle(chunk, CHUNK_BACK, 1, &host_given);
    } else if (strcmp(operation, "resident") == 0) {
        settle(chunk, CHUNK_RESIDENT, 1, NULL);
    } else if (strcmp(operation, "confirm") == 0) {
        chunks_confirm_back(0, false, give);
    } else if (strcmp(operation, "give_up") == 0) {
        chunks_confirm_back(0, true, give);
    } else if (strcmp(operation, "copied") == 0) {
        settle_copied(chunk, &host_given);
    }
    return 0;
}

static void print_sums(void) {
    const struct chunk_sums sums = chunks_sums_of(0);
    const uint64_t bytes[] = {sums.bytes_resident, sums.bytes_movable, sums.bytes_managed,
                              sums.bytes_parked,   sums.bytes_kept,    sums.bytes_next,
                              sums.bytes_copied,   sums.bytes_back};
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
        printf("%" PRIu64 " ", bytes[i] / CHUNK_GRANULE);
    printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32
           " %d %d %d\n",
           sums.moving, sums.to_leave, sums.to_come, sums.to_take_back, sums.to_copy, sums.copies,
           sums.copied, (int)chunks_all_here(), (int)chunks_all_confirmed(), host_given);
}

/* How often each chunk was claimed. Not atomic: whoever has claimed it is alone, which the thread
 * sanitizer checks. */
static int claims[64 * CHUNKS_OF_THREAD];
static _Atomic bool over;

static void use(const struct chunk *chunk) {
    claims[place_of(chunk)]++;
}

static void *allocate_and_free(void *argument) {
    struct piece *own = &pieces[(uintptr_t)argument * CHUNKS_OF_THREAD];
    for (int i = 0; i < ROUNDS; i++) {
        const int count = 1 + i % CHUNKS_OF_THREAD;
        for (int j = 0; j < count; j++)
            add(&own[j], 0);
        for (int j = 0; j < count; j++) {
            if (!chunks_claim_for_free(&own[j].chunk)) fprintf(stderr, "not claimed\n");
            use(&own[j].chunk);
            own[j].chunk.handle = 0; /* as its device memory goes, which takes a while */
            sched_yield();
            leave(&own[j]);
        }
    }
    return NULL;
}

static void keep(void *host, uint64_t bytes) {
    (void)host, (void)bytes;
}

static void *park_and_restore(void *host) {
    struct chunk *chunk;
    for (int i = 0; !atomic_load(&over); i++) {
        if (i % 4 == 0) chunks_let_go(UINT64_MAX / 2);
        if ((chunk = claimed(chunks_claim_leaving_locked)) != NULL) {
            use(chunk);
            if (i % 2 == 0)
                chunks_settle_failed(chunk, 0);
            else
                settle(chunk, CHUNK_PARKED, 0, host);
        }
        if ((chunk = claimed(chunks_claim_copying_locked)) != NULL) {
            use(chunk);
            settle_copied(chunk, host);
        }
        if (i % 8 == 0) chunks_confirm_back(0, true, keep);
        if ((chunk = claimed(chunks_claim_coming_locked)) != NULL) {
            use(chunk);
            settle(chunk, CHUNK_BACK, 1, host);
        }
        if ((chunk = claimed(chunks_claim_back_locked)) != NULL) {
            use(chunk);
            settle(chunk, CHUNK_RESIDENT, 1, NULL);
        }
        sched_yield(); /* else it has a busy core for a whole time slice, and nobody frees */
    }
    return NULL;
}

static void race(int count) {
    static int host_memory;
    pthread_t allocating[64], moving[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&moving[i], NULL, park_and_restore, &host_memory);
    for (int i = 0; i < count; i++)
        pthread_create(&allocating[i], NULL, allocate_and_free, (void *)(uintptr_t)i);
    for (int i = 0; i < count; i++)
        pthread_join(allocating[i], NULL);
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(moving[i], NULL);
}

int main(int argc, char **argv) {
    if (argc == 2) race(atoi(argv[1]) < 64 ? atoi(argv[1]) : 64);
    char operation[16];
    uint64_t place, seconds;
    while (argc == 1 && scanf("%15s %" SCNu64 " %" SCNu64, operation, &place, &seconds) == 3) {
        printf("%" PRIu64 " ", perform(operation, place, seconds));
        print_sums();
    }
    print_sums();
    return 0;
}
