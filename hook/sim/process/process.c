#define _GNU_SOURCE
#include "process/process.h"

#include "machine/engine.h"

struct sim_segment *process_segment;
struct sim_process *process_row;
uint32_t process_pid;
uint32_t process_devices[SIM_DEVICES_MAX];
int process_device_count;

_Thread_local bool process_default_stream_is_per_thread;

void process_wake(void) {
    if (atomic_load(&process_row->sleeping) == 0) return;
    if (atomic_exchange(&process_row->sleeping, 0) == 1) engine_ring(process_row);
}
