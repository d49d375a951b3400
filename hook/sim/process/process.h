/* This process's part in the simulated machine: its segment, its row, its devices. Set once by
 * cuInit, then read without a lock. */
#ifndef GPUSHARE_SIM_PROCESS_H
#define GPUSHARE_SIM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/segment.h"

#pragma GCC visibility push(hidden)

extern struct sim_segment *process_segment;
extern struct sim_process *process_row;
extern uint32_t process_pid;    /* of the process that called cuInit */
extern uint32_t process_number; /* its name in the journal; see segment_number */

/* The devices that this process may see (CUDA_VISIBLE_DEVICES, MIG rules): ordinal to index in the
 * segment. */
extern uint32_t process_devices[SIM_DEVICES_MAX];
extern int process_device_count;

/* A device's number in this process; -1: it is not among those that this process sees. */
int process_ordinal_of(uint32_t device);

/* What the stream handle NULL means in the call under way on this thread. */
extern _Thread_local bool process_default_stream_is_per_thread;

/* The name of that call, without its version. */
extern _Thread_local const char *process_call;

/* There is something for the process's executor: wakes it if it sleeps. */
void process_wake(void);

#pragma GCC visibility pop
#endif
