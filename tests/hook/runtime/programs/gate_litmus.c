/* The closing protocol of gate.c by itself, without driver and scheduler: threads pass the fast
 * path as fast as they can while the gate is shut and opened again. ROUNDS on the command line;
 * prints how many calls passed, and how many were inside while the gate counted as shut. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bell.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "device/streams.h"
#include "gate/gate.h"
#include "gate/gate_control.h"
#include "gate/threads.h"

#define THREADS 3

/* ---- what gate.c and threads.c need of the rest ---- */

static struct driver driver;

const struct driver *driver_get(void) {
    return &driver;
}
bool bell_is_heard(void) {
    return true;
}
void bell_start_agent(const char *cause) {
    (void)cause;
}
bool contexts_know_current(void **handle) {
    *handle = &driver;
    return true;
}
bool contexts_has_failed(void *context) {
    (void)context;
    return false;
}
uint64_t streams_number(void *stream, void **context) {
    *context = stream;
    return 1;
}

uint64_t streams_known_number(void *stream, void **context) {
    *context = stream;
    return 1;
}
bool failure_is_sticky(int cu_result) {
    (void)cu_result;
    return false;
}
uint64_t contexts_generation(void *handle) {
    (void)handle;
    return 0;
}

void failure_of(uint64_t context, int cu_result) {
    (void)context;
    (void)cu_result;
}
void failure_look(int cu_result) {
    (void)cu_result;
}
void streams_thread_ends(void) {}
bool streams_is_capturing(void *stream) {
    (void)stream;
    return false;
}
void wait_wake_all(void) {}
uint64_t wait_looks(void) {
    return 0;
}
bool wait_for(const struct wait_condition *condition, const char *call_name) {
    (void)call_name;
    while (!condition->holds(condition->argument))
        continue;
    return true;
}
void window_set_active(bool active) {
    (void)active;
}
void window_turn_drained(void) {}

void window_gate_shuts(void) {}
static struct window_ring ring;
static unsigned long counted; /* launches into `ring`, and one; 0: the window admits none to it */
bool window_admit(struct thread_record *self, const struct gate_call *call) {
    (void)call;
    self->counting = counted ? &ring : NULL;
    self->group = &ring;
    return true;
}
bool window_joins(const struct thread_record *self, const void *stream,
                  enum gate_stream_variant variant) {
    (void)self, (void)stream, (void)variant;
    return true;
}
bool ending_has_begun(void) {
    return false;
}

bool chunks_all_here(void) {
    return true;
}

void window_launched(struct thread_record *self, struct window_ring *launched) {
    (void)self;
    if (counted) counted += launched == &ring;
}
void window_thread_ends(struct thread_record *self) {
    (void)self;
}

/* ---- the test ---- */

static _Atomic int shut_and_empty; /* the closer believes that nobody is inside */
static _Atomic int stop;
static _Atomic unsigned long escaped;

/* Each in cache lines of its own. */
static struct counts {
    _Atomic unsigned long passed, in_groups;
    char rest[128 - 2 * sizeof(unsigned long)];
} counts[THREADS];

static unsigned long passed(void) {
    unsigned long sum = 0;
    for (int i = 0; i < THREADS; i++)
        sum += atomic_load_explicit(&counts[i].passed, memory_order_relaxed);
    return sum;
}

static unsigned long passed_in_groups(void) {
    unsigned long sum = 0;
    for (int i = 0; i < THREADS; i++)
        sum += atomic_load_explicit(&counts[i].in_groups, memory_order_relaxed);
    return sum;
}

static void *call(void *own) {
    const struct gate_call description = {GATE_LAUNCH, GATE_STREAM_LEGACY, NULL, "call"};
    struct counts *mine = own;
    unsigned long wrong = 0, through = 0, joined = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        bool joins = gate_enter_group(NULL, GATE_STREAM_LEGACY);
        if (!joins && gate_enter(description) != GATE_PASS) continue;
        joined += joins;
        for (int i = 0; i < 4; i++)
            wrong += atomic_load_explicit(&shut_and_empty, memory_order_acquire) != 0;
        gate_leave(description, 0);
        atomic_store_explicit(&mine->passed, ++through, memory_order_relaxed);
        atomic_store_explicit(&mine->in_groups, joined, memory_order_relaxed);
    }
    atomic_fetch_add(&escaped, wrong);
    return NULL;
}

/* On a busy machine the closer alone may run for long: so many closings would prove nothing. */
static void let_calls_pass(unsigned long closings, bool windowed) {
    while (passed() <= closings || (windowed && passed_in_groups() <= closings / 10))
        sched_yield();
}

/* A call that the window admitted leaves while the window is off; the next one enters so and leaves
 * while it is on. Only the first was for the ring, which may stand for a stream that is gone. */
static int cross_two_changes(void) {
    const struct gate_call description = {GATE_LAUNCH, GATE_STREAM_LEGACY, NULL, "call"};
    counted = 1;
    for (int windowed = 1; windowed >= 0; windowed--) {
        gate_open(windowed);
        if (gate_enter(description) != GATE_PASS) return 3;
        gate_open(!windowed);
        gate_leave(description, 0);
    }
    printf("counted %lu\n", counted - 1);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    gate_prepare();
    if (strcmp(arguments[1], "changes") == 0) return cross_two_changes();
    gate_open(false);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, call, &counts[i]);
    const long closings = atol(arguments[1]);
    for (long round = closings; round > 0; round--) {
        gate_shut();
        while (gate_calls_inside() > 0)
            continue;
        atomic_store(&shut_and_empty, 1);
        for (volatile int i = 0; i < 200; i++)
            continue;
        atomic_store(&shut_and_empty, 0);
        gate_drained();
        gate_open(round % 2 == 0);
        for (volatile int i = 0; i < 300; i++)
            continue;
        let_calls_pass((unsigned long)(closings - round), round % 2 == 0);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("passed %lu groups %lu escaped %lu\n", passed(), passed_in_groups(),
           atomic_load(&escaped));
    return 0;
}
