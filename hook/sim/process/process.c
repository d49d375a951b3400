#define _GNU_SOURCE
#include "process/process.h"

#include "machine/engine.h"

struct sim_segment *process_segment;
struct sim_process *process_row;
uint32_t process_pid;
uint32_t process_number;
uint32_t process_devices[SIM_DEVICES_MAX];
int process_device_count;

_Thread_local bool process_default_stream_is_per_thread;
_Thread_local const char *process_call;

int process_ordinal_of(uint32_t device) {
    for (int i = 0; i < process_device_count; i++)
        if (process_devices[i] == device) return i;
    return -1;
}

void process_wake(void) {
    if (atomic_load(&process_row->sleeping) == 0) return;
    if (atomic_exchange(&process_row->sleeping, 0) == 1) engine_ring(process_row);
}
