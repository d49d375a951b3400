/* Does to the addresses of a pool what it reads, one operation a line, and prints its result, and
 * then all parts as "START:UNITS:STATE:STREAM", in units of 512 bytes. Without memory 24 slots. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/space.h"

#define ADDRESS ((uint64_t)1 << 40)

static struct space space;

static uint64_t unit_of(uint64_t address) {
    return (address - ADDRESS) / SPACE_UNIT_BYTES;
}

static void print_parts(void) {
    static const char STATES[] = "efucl"; /* empty, free, used, claimed, lost */
    const struct extent *extent;
    TAILQ_FOREACH(extent, &space.extents, next) {
        const struct freer *freer = extent->freer;
        const int64_t stream = freer == NULL || freer == &space.anybody
                                   ? (freer != NULL) - 1
                                   : (int64_t)freer->key.stream;
        printf(" %" PRIu64 ":%" PRIu64 ":%c:%" PRId64, unit_of(extent->address),
               extent->bytes / SPACE_UNIT_BYTES, STATES[extent->state], stream);
        if (space_find(&space, extent->address + extent->bytes - 1) != extent) printf(" lost");
    }
    printf("\n");
    fflush(stdout);
}

static void print_made(const struct extent *extent, uint64_t missing) {
    if (extent != NULL)
        printf("%" PRIu64 " %" PRIu64, unit_of(extent->address), missing / SPACE_SLOT_BYTES);
    else
        printf("none 0");
}

static void grow(uint64_t bytes, struct stream_key key, bool succeeds) {
    struct run run;
    const uint64_t missing = space_missing(&space, bytes, key);
    uint64_t lacking;
    space_lacking(&space, bytes, key, &lacking);
    if (lacking > missing) printf("wrong ");
    if (!space_claim(&space, bytes, key, &run)) {
        print_made(NULL, 0);
        return;
    }
    if (run.bytes_missing != missing) printf("wrong ");
    struct extent *made = run.first;
    if (succeeds)
        made = space_settle(&space, &run, bytes, 1);
    else
        space_unclaim(&space, &run);
    print_made(succeeds ? made : NULL, missing);
}

/* Somebody claims a run, and all of its memory is lost before there is what was missing. */
static void lose_a_run(uint64_t bytes, struct stream_key key) {
    struct run run;
    if (!space_claim(&space, bytes, key, &run)) {
        printf("none");
        return;
    }
    if (space_run_is_lost(&run)) printf("wrong ");
    space_lose(&space, space.address, space.bytes);
    printf(space_run_is_lost(&run) ? "lost_run" : "wrong");
    space_unclaim(&space, &run);
}

int main(void) {
    char operation[8];
    uint64_t first, second, point = 0;
    if (!space_open(&space, ADDRESS, 24 * SPACE_SLOT_BYTES)) return 1;
    while (scanf("%7s %" SCNu64 " %" SCNu64, operation, &first, &second) == 3) {
        const struct stream_key key = {7, second};
        const uint64_t address = ADDRESS + first * SPACE_UNIT_BYTES;
        if (strcmp(operation, "take") == 0) {
            print_made(space_take(&space, first, key, 1), 0);
        } else if (strcmp(operation, "grow") == 0 || strcmp(operation, "fail") == 0) {
            grow(first, key, operation[0] == 'g');
        } else if (strcmp(operation, "free") == 0) {
            space_free(&space, space_find(&space, address), key, ++point);
            printf("%" PRIu64, point);
        } else if (strcmp(operation, "now") == 0) {
            space_free_now(&space, space_find(&space, address));
            printf("done");
        } else if (strcmp(operation, "over") == 0) {
            struct freer *freer = space_freer(&space, key);
            if (freer != NULL) space_over(&space, freer, first);
            if (freer != NULL && space_forget(freer)) free(freer);
            printf("done");
        } else if (strcmp(operation, "risk") == 0) {
            lose_a_run(first, key);
        } else if (strcmp(operation, "lose") == 0) {
            space_lose(&space, address, second * SPACE_SLOT_BYTES);
            printf("done");
        } else if (strcmp(operation, "back") == 0) {
            struct extent *left = space_vacate_lost(&space, address, second * SPACE_SLOT_BYTES);
            if (left != NULL) space_vacated(&space, left);
            printf(left != NULL ? "done" : "none");
        } else if (strcmp(operation, "follow") == 0) {
            const struct stream_key other = {7, first};
            struct freer *freer = space_freer(&space, other);
            if (freer != NULL) space_follow(&space, freer, point, key, point + 1);
            printf("%" PRIu64, ++point);
        } else {
            struct extent *left = space_vacate(&space, address, second * SPACE_SLOT_BYTES);
            if (left != NULL) space_vacated(&space, left);
            printf(left != NULL ? "done" : "none");
        }
        print_parts();
    }
    space_close(&space);
    return 0;
}
