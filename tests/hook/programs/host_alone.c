/* The mover's care for host memory by itself. A process has its turn for two seconds, and then no
 * turn for two, again and again, and others always wait. By its argument it prints, after a minute,
 * how many MiB of host memory it has, where
 * - unused: it has 40 GiB, and parks 2 of them each time.
 * - used: it has 2 GiB, and parks all of them.
 * - alone: as used, but the others have gone with the latest turn, which is ten seconds old.
 * With "short" the system has none left for others, and it prints what one look gives back of 2 GiB
 * that nothing is parked in, and what all looks do that follow each other, in MiB.
 * With "begun" the system has none left either, what is free lies between what is parked, and one
 * more segment was begun. It prints how many MiB of that one it keeps.
 * With "copies" it gives back what was not needed for long, and prints whether that ends copies.
 * With "came" the system has none left when a restore begins, and enough soon after. It prints how
 * many MiB it keeps of what comes then.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/contexts.h"
#include "device/devices.h"
#include "swap/copy_pipeline.h"
#include "swap/host_arena.h"
#include "swap/mover_host.h"
#include "swap/residency.h"

#define GIB ((uint64_t)1 << 30)
#define PARKS_BYTES (2 * GIB)

static uint64_t now_s = 1000, arena_bytes, parked_bytes, hint_bytes = PARKS_BYTES;
static uint64_t room_bytes = 1000 * GIB, begun_bytes;
static bool is_stuck; /* no segment is free as a whole */

_Atomic uint32_t contexts_leaving;

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now = (struct timespec){.tv_sec = (time_t)now_s};
    return 0;
}

uint64_t host_arena_free(void) {
    return arena_bytes - parked_bytes;
}

uint64_t host_arena_begun(void) {
    return begun_bytes;
}

uint64_t host_arena_system_room(void) {
    return room_bytes;
}

bool host_arena_is_short(void) {
    return false;
}

bool host_arena_prepare(uint64_t bytes, int device, uint64_t chunk_bytes, uint64_t left_bytes) {
    (void)device, (void)chunk_bytes, (void)left_bytes;
    arena_bytes += bytes - host_arena_free();
    return true;
}

void host_arena_trim(uint64_t bytes, bool has_context) {
    (void)has_context;
    if (bytes == 0) begun_bytes = 0;
    if (!is_stuck) arena_bytes -= host_arena_free() - bytes;
}

void host_arena_give(void *host, uint64_t bytes) {
    (void)host, (void)bytes;
}

bool residency_copies_are_of_use(int device) {
    (void)device;
    return true;
}

void chunks_confirm_back(int device, bool copied_alone, void (*give)(void *host, uint64_t bytes)) {
    (void)device, (void)copied_alone, (void)give;
}

uint64_t residency_park_hint(void) {
    return hint_bytes;
}

int devices_open(int ordinals[DEVICES_MAX]) {
    ordinals[0] = 0;
    return 1;
}

struct chunk_sums chunks_sums_of(int device) {
    (void)device;
    return (struct chunk_sums){.bytes_movable = PARKS_BYTES - parked_bytes,
                               .bytes_parked = parked_bytes};
}

bool chunks_all_confirmed(void) {
    return true;
}

void *chunks_movable_context(void) {
    return &arena_bytes;
}

bool contexts_has_failed(void *handle) {
    (void)handle;
    return false;
}

uint32_t contexts_list(bool failed, void *handles[], uint32_t max) {
    (void)failed, (void)handles, (void)max;
    return 0;
}

bool pipeline_use_context(void *context) {
    (void)context;
    return true;
}

uint32_t pipeline_flights(void) {
    return 0;
}

bool ending_driver_use_begin(void) {
    return true;
}

void ending_driver_use_end(void) {}

static void spend(enum mover_goal goal, int seconds) {
    for (int i = 0; i < seconds; i++, now_s++)
        while (mover_host_look(goal) == MOVER_HOST_MORE)
            ;
}

static void turn(int seconds) {
    mover_host_goal_changed();
    mover_host_look(MOVER_RESTORE);
    parked_bytes = 0;
    mover_host_goal_changed();
    spend(MOVER_REST, seconds);
}

static void no_turn(void) {
    mover_host_goal_changed();
    mover_host_look(MOVER_PARK);
    parked_bytes = PARKS_BYTES;
    spend(MOVER_PARK, 2);
}

static uint64_t given_mib(void) {
    return (PARKS_BYTES - arena_bytes) >> 20;
}

static int run_short(void) {
    arena_bytes = PARKS_BYTES;
    room_bytes = 0;
    mover_host_look(MOVER_REST);
    printf("%d ", (int)given_mib());
    while (mover_host_look(MOVER_REST) == MOVER_HOST_MORE)
        ;
    printf("%d\n", (int)given_mib());
    return 0;
}

static int run_begun(enum mover_goal goal) {
    arena_bytes = PARKS_BYTES;
    room_bytes = 0;
    begun_bytes = HOST_ARENA_SEGMENT_BYTES;
    is_stuck = true;
    spend(goal, 1);
    printf("%d\n", (int)(begun_bytes >> 20));
    return 0;
}

static int run_copies(void) {
    arena_bytes = 40 * GIB;
    mover_host_goal_changed();
    while (mover_host_look(MOVER_PARK) == MOVER_HOST_DONE)
        now_s++;
    printf("%d\n", mover_host_ends_copies(0));
    return 0;
}

static int run_came(void) {
    arena_bytes = PARKS_BYTES;
    room_bytes = 0;
    mover_host_goal_changed();
    spend(MOVER_RESTORE, 1);
    room_bytes = 1000 * GIB;
    spend(MOVER_RESTORE, 1);
    arena_bytes += GIB;
    spend(MOVER_RESTORE, 1);
    printf("%d\n", (int)(arena_bytes >> 20));
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "short") == 0) return run_short();
    if (strcmp(what, "begun") == 0) return run_begun(MOVER_RESTORE);
    if (strcmp(what, "copies") == 0) return run_copies();
    if (strcmp(what, "came") == 0) return run_came();
    arena_bytes = strcmp(what, "unused") == 0 ? 40 * GIB : PARKS_BYTES;
    for (int i = 0; i < 15; i++) {
        turn(2);
        no_turn();
    }
    if (strcmp(what, "alone") == 0) {
        hint_bytes = 0;
        turn(10);
    }
    printf("%d\n", (int)(arena_bytes >> 20));
    return 0;
}
