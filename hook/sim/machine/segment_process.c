/* The rows of processes in the shared segment: joining, leaving, reaping, charging bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/elsewhere.h"
#include "machine/engine.h"
#include "machine/segment.h"

#define TICKS_UNKNOWN UINT64_MAX

/* Of /proc/PID/stat: when the process started; 0 when it is gone. The one whose first thread has
 * ended is not, as long as there are others. A caller without a descriptor to spare cannot tell. */
static uint64_t start_ticks_of(uint32_t pid) {
    char path[32];
    char text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ESRCH ? 0 : TICKS_UNKNOWN;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0;
    text[length] = '\0';
    const char *after_name = strrchr(text, ')'); /* the name may hold anything */
    char state = 'X';
    long threads = 0;
    unsigned long long ticks = 0;
    if (after_name == NULL ||
        sscanf(after_name + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
               &state, &threads, &ticks) != 3)
        return 0;
    return (state == 'Z' || state == 'X') && threads <= 1 ? 0 : ticks;
}

static int row_of(const struct sim_segment *segment, const struct sim_process *process) {
    return (int)(process - segment->processes);
}

/* Whether its pid is a number of our own. */
static bool lives_here(const struct sim_process *process) {
    return process->pid_namespace == elsewhere_own_namespace();
}

static bool is_self(const struct sim_process *process) {
    return atomic_load(&process->pid) == (uint32_t)getpid() && lives_here(process);
}

bool segment_process_lives(const struct sim_segment *segment, const struct sim_process *process) {
    uint32_t pid = atomic_load(&process->pid);
    if (pid == 0) return false;
    if (!lives_here(process))
        return elsewhere_is_held(segment_directory(), row_of(segment, process), &pid);
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) return false;
    const uint64_t ticks = start_ticks_of(pid);
    return ticks == TICKS_UNKNOWN || ticks == process->start_ticks;
}

/* Call with the lock held. */
static void clear_row(struct sim_segment *segment, struct sim_process *row) {
    segment_shared_clear(segment, row);
    for (uint32_t d = 0; d < segment->device_count; d++) {
        struct sim_process_use *use = &row->use[d];
        atomic_fetch_sub(&segment->devices[d].bytes_used, atomic_load(&use->bytes_used));
        for (int e = 0; e < SIM_ENGINES; e++) {
            while (use->active_jobs[e] > 0)
                engine_end_locked(segment, row, d, e);
        }
    }
    memset(row->use, 0, sizeof row->use);
    row->start_ticks = 0;
    atomic_store(&row->sleeping, 0);
    atomic_store(&row->pid, 0);
}

bool segment_reap(struct sim_segment *segment) {
    bool freed = false;
    for (int p = 0; p < SIM_PROCESSES_MAX; p++) {
        struct sim_process *row = &segment->processes[p];
        if (atomic_load(&row->pid) == 0 || segment_process_lives(segment, row)) continue;
        clear_row(segment, row);
        freed = true;
    }
    return freed;
}

/* What this process had before an exec: its pid lives, and its start time is the same. Call with
 * the lock held. */
static void clear_own_rows(struct sim_segment *segment) {
    for (int p = 0; p < SIM_PROCESSES_MAX; p++) {
        struct sim_process *row = &segment->processes[p];
        if (is_self(row)) clear_row(segment, row);
    }
}

struct sim_process *segment_join(struct sim_segment *segment) {
    struct sim_process *self = NULL;
    segment_lock(segment);
    segment_reap(segment);
    clear_own_rows(segment);
    for (int p = 0; p < SIM_PROCESSES_MAX && self == NULL; p++) {
        if (atomic_load(&segment->processes[p].pid) == 0) self = &segment->processes[p];
    }
    if (self != NULL) {
        memset(self->use, 0, sizeof self->use);
        self->start_ticks = start_ticks_of((uint32_t)getpid());
        self->pid_namespace = elsewhere_own_namespace();
        elsewhere_hold(segment_directory(), row_of(segment, self));
        atomic_store(&self->pid, (uint32_t)getpid());
    }
    segment_unlock(segment);
    return self;
}

void segment_leave(struct sim_segment *segment, struct sim_process *self) {
    segment_lock(segment);
    if (is_self(self)) clear_row(segment, self);
    segment_unlock(segment);
}

uint32_t segment_pid_here(const struct sim_segment *segment, const struct sim_process *process) {
    uint32_t pid = atomic_load(&process->pid);
    if (!lives_here(process))
        (void)elsewhere_is_held(segment_directory(), row_of(segment, process), &pid);
    return pid;
}

uint32_t segment_number(const struct sim_segment *segment, const struct sim_process *process) {
    const uint32_t pid = atomic_load(&process->pid);
    if (process->pid_namespace == segment->pid_namespace) return pid;
    return (uint32_t)(row_of(segment, process) + 1) << SIM_PID_BITS | pid;
}

/* Call with the lock held. */
static void give_up_kept(struct sim_segment *segment, uint32_t device, uint64_t bytes) {
    struct sim_device *target = &segment->devices[device];
    for (int i = 0; i < SIM_PROCESSES_MAX; i++) {
        struct sim_process_use *use = &segment->processes[i].use[device];
        const uint64_t left = target->bytes_total - atomic_load(&target->bytes_used);
        if (bytes <= left) return;
        const uint64_t missing = bytes - left;
        const uint64_t gone = missing < use->bytes_kept ? missing : use->bytes_kept;
        use->bytes_kept -= gone;
        atomic_fetch_sub(&use->bytes_used, gone);
        atomic_fetch_sub(&target->bytes_used, gone);
    }
}

bool segment_charge(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                    uint64_t bytes) {
    struct sim_device *target = &segment->devices[device];
    segment_lock(segment);
    bool fits = bytes <= target->bytes_total - atomic_load(&target->bytes_used);
    if (!fits && segment_reap(segment))
        fits = bytes <= target->bytes_total - atomic_load(&target->bytes_used);
    if (!fits) {
        give_up_kept(segment, device, bytes);
        fits = bytes <= target->bytes_total - atomic_load(&target->bytes_used);
    }
    if (fits) {
        atomic_fetch_add(&target->bytes_used, bytes);
        atomic_fetch_add(&self->use[device].bytes_used, bytes);
    }
    segment_unlock(segment);
    return fits;
}

void segment_discharge(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       uint64_t bytes) {
    segment_lock(segment);
    atomic_fetch_sub(&segment->devices[device].bytes_used, bytes);
    atomic_fetch_sub(&self->use[device].bytes_used, bytes);
    segment_unlock(segment);
}

void segment_keep(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                  uint64_t bytes) {
    segment_lock(segment);
    self->use[device].bytes_kept += bytes;
    segment_unlock(segment);
}

bool segment_take_kept(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       uint64_t bytes) {
    segment_lock(segment);
    const bool is_left = self->use[device].bytes_kept >= bytes;
    if (is_left) self->use[device].bytes_kept -= bytes;
    segment_unlock(segment);
    return is_left;
}
