#define _GNU_SOURCE
/* The life of a process with the simulated driver: from cuInit to its exit or a fork. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "executor/executor.h"
#include "machine/journal.h"
#include "machine/visible.h"
#include "memory/descriptor.h"
#include "process/faults.h"
#include "process/process.h"
#include "sim_api.h"
#include "surface/entry.h"

_Atomic uint32_t entry_word = ENTRY_UNINITIALISED;

static pthread_mutex_t initialise_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult entry_not_simulated(unsigned index) {
    CUresult refused = entry_slow(index);
    return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult entry_slow(unsigned index) {
    uint32_t word = atomic_load(&entry_word);
    const struct entry_row *row = &entry_table[index];
    bool refused = (word & (ENTRY_UNINITIALISED | ENTRY_FORKED)) != 0;
    if (refused && !row->anytime) return CUDA_ERROR_NOT_INITIALIZED;
    if ((word & ENTRY_FAULTS) != 0) return (CUresult)faults_check(row->base);
    return CUDA_SUCCESS;
}

/* Executor and device handles did not survive the fork; as with the real driver, nothing works in
 * the child, and nothing may hang there. */
static void after_fork_in_child(void) {
    if (process_row == NULL) return;
    atomic_fetch_or(&entry_word, ENTRY_FORKED);
}

/* The process ends in good order: queued work is dropped and everything is given back. */
__attribute__((destructor)) static void leave(void) {
    if (process_row == NULL || process_pid != (uint32_t)getpid()) return;
    atomic_fetch_or(&entry_word, ENTRY_UNINITIALISED);
    executor_stop();
    segment_leave(process_segment, process_row);
}

/* A process without a context has no executor before it gives descriptors away. If it cannot have
 * one, closed descriptors are found by the calls that look at the device's memory. */
static void look_at_descriptors(void) {
    (void)executor_start();
}

/* Opens the machine and joins it; once per process. */
static CUresult initialise(void) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&initialise_lock);
    if (process_row == NULL) {
        struct sim_segment *segment = segment_open();
        if (segment == NULL) {
            result = CUDA_ERROR_SYSTEM_NOT_READY;
        } else {
            process_device_count = visible_devices(segment, process_devices);
            if (process_device_count == 0) result = CUDA_ERROR_NO_DEVICE;
        }
        struct sim_process *row = result == CUDA_SUCCESS ? segment_join(segment) : NULL;
        if (result == CUDA_SUCCESS && row == NULL) result = CUDA_ERROR_OPERATING_SYSTEM;
        if (row != NULL) {
            process_segment = segment;
            process_pid = (uint32_t)getpid();
            process_number = segment_number(segment, row);
            journal_open(segment_directory());
            pthread_atfork(NULL, NULL, after_fork_in_child);
            process_row = row;
            descriptor_set_start(look_at_descriptors);
            if (faults_load(segment_directory())) atomic_fetch_or(&entry_word, ENTRY_FAULTS);
            atomic_fetch_and(&entry_word, ~(uint32_t)ENTRY_UNINITIALISED);
        }
    }
    pthread_mutex_unlock(&initialise_lock);
    return result;
}

CUresult sim_cuInit(unsigned int flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((atomic_load(&entry_word) & ENTRY_FORKED) != 0) return CUDA_ERROR_NOT_INITIALIZED;
    return initialise();
}

CUresult sim_cuDriverGetVersion(int *driverVersion) {
    if (driverVersion == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct sim_segment *segment = segment_open();
    *driverVersion = segment == NULL ? 13000 : (int)segment->config.driver_version;
    return CUDA_SUCCESS;
}
