/* work.c beside what it calls: says where a place was asked for with the lock of the streams held.
 * There are so many places and no more, and who has one may wait for that lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/locks.h"
#include "device/contexts.h"
#include "gate/work.h"

static int held, asked, wrong;
static struct context context = {.generation = 1, .handle = &context};
static struct stream_entry stream = {.stream = &stream, .context = 1, .number = 1};
static struct streams tables = {.streams = &stream, .streams_used = 1, .last_number = 1};

static CUresult done(void) {
    return CUDA_SUCCESS;
}

/* Never done, so that it is recorded. */
static CUresult runs(void) {
    return CUDA_ERROR_NOT_READY;
}

static struct driver driver;
static uint32_t recorded;

const struct driver *driver_get(void) {
    return &driver;
}

void lock_take(enum runtime_lock lock) {
    held += lock == LOCK_STREAMS;
}

void lock_release(enum runtime_lock lock) {
    held -= lock == LOCK_STREAMS;
}

void locks_signals_wait(void) {}
void locks_signals_come(void) {}

uint32_t streams_use_begins(uint64_t in) {
    asked++;
    wrong += held > 0;
    return (uint32_t)in;
}

bool streams_recording_begins(uint64_t in, uint32_t *place) {
    *place = streams_use_begins(in);
    return true;
}

void streams_recording_ends(uint32_t place) {
    (void)place;
}

void *streams_record(uint64_t in, uint64_t number) {
    recorded++;
    driver.event_query = (__typeof__(driver.event_query))done;
    return in == 1 && number <= 1 ? &recorded : NULL;
}

struct context *contexts_find(uint64_t generation) {
    return generation == 1 ? &context : NULL;
}

bool contexts_may_ask(const struct context *known) {
    return known != NULL;
}

struct streams *streams_tables(void) {
    return &tables;
}

struct stream_entry *streams_find_number(uint64_t number) {
    return number == 1 ? &stream : NULL;
}

struct capture_entry *streams_find_capture(const void *of) {
    (void)of;
    return NULL;
}

bool streams_is_capturing(void *of) {
    return of == NULL;
}

bool streams_blocking_captures(uint64_t in) {
    return in != 1;
}

void streams_keep_spare(uint64_t in, void *event) {
    (void)in, (void)event;
}

void streams_adopt_event(uint64_t in, void *event, bool pending) {
    (void)in, (void)event, (void)pending;
}

void *streams_record_in(uint64_t in, void *behind, void *spare) {
    (void)in, (void)behind;
    return spare;
}

void *streams_spare_event(uint64_t in) {
    return in == 1 ? &recorded : NULL;
}

_Atomic uint32_t streams_captures, streams_leaving;

CUstreamCaptureMode driver_relaxed_begin(const struct driver *cuda) {
    (void)cuda;
    return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void driver_relaxed_end(const struct driver *cuda, CUstreamCaptureMode mode) {
    (void)cuda, (void)mode;
}

bool failure_is_sticky(int cu_result) {
    return cu_result < 0;
}

void failure_of(uint64_t in, int cu_result) {
    (void)in, (void)cu_result;
}

void threads_synchronise_began(void) {}

void threads_synchronise_ended(int cu_result) {
    (void)cu_result;
}

#define ANSWERS(name, answer) driver.name = (__typeof__(driver.name))(answer)

int main(void) {
    ANSWERS(stream_query, runs);
    ANSWERS(event_query, runs);
    ANSWERS(context_push, done);
    ANSWERS(context_pop, done);
    ANSWERS(context_get_current, done);
    ANSWERS(event_record, done);
    ANSWERS(event_create, done);
    ANSWERS(stream_wait_event, done);
    work_wait(1);
    printf("waits %u %d\n", recorded, asked);
    work_stream_is_idle(&stream);
    work_follow(1, &recorded, &stream);
    work_mark(1, DRIVER_STREAM_LEGACY, true);
    printf("asked %d wrong %d\n", asked, wrong);
    return 0;
}
