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
