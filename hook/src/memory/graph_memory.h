/* Memory that CUDA graphs allocate when they run. The driver owns it: all graphs of a device have
 * it in turn, it is taken at a launch, and stays reserved after that. So what is reserved counts as
 * fixed, is claimed ahead of a launch, and is given up after a drain when memory is short. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Some graph of this process allocates. Before that nothing here costs anything. */
extern _Atomic bool graph_memory_is_used;

void graph_memory_seen(void);
/* A bit for each executable graph that allocates, by its handle; none is taken back before all of
 * them are gone. So launches of most others need no lock and take no longer way. */
#define GRAPH_MEMORY_WORDS 16
extern _Atomic uint64_t graph_memory_marks[GRAPH_MEMORY_WORDS];

static inline uint64_t graph_memory_mark_of(const void *executable, _Atomic uint64_t **word) {
    const uint64_t hash = (uint64_t)(uintptr_t)executable * 0x9E3779B97F4A7C15u;
    *word = &graph_memory_marks[(hash >> 58) % GRAPH_MEMORY_WORDS];
    return (uint64_t)1 << (hash >> 52 & 63);
}

static inline bool graph_memory_may_be(const void *executable) {
    _Atomic uint64_t *word;
    const uint64_t mark = graph_memory_mark_of(executable, &word);
    return (atomic_load_explicit(word, memory_order_relaxed) & mark) != 0;
}
/* An executable graph was made of this one, or is destroyed. */
void graph_memory_instantiated(void *executable, void *graph);
void graph_memory_destroyed(void *executable);
/* What a launch needs of its device at most. False: nothing. */
bool graph_memory_of(void *executable, int *device, uint64_t *bytes);

/* What counts as reserved on the device. */
uint64_t graph_memory_counted(int device);
/* A launch is on its way for which so much more will be reserved: it counts from now on, in the
 * place of a claim in the registry. */
void graph_memory_expect(int device, uint64_t bytes);
/* Asks the driver what is reserved, counts it, and calls `changed` where that is another number. */
void graph_memory_look(void (*changed)(int device));
/* Gives up what no graph has just now; whether there was anything. */
bool graph_memory_trim(int device);

void graph_memory_after_fork(void);
