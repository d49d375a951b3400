/* The shared segment: one simulated machine, shared by all processes that name the same directory.
 *
 * Both simulated libraries (libcuda.so.1 and libnvidia-ml.so.1) are built over it. This header
 * names no CUDA or NVML type.
 *
 * Directory: $GPUSHARE_SIM_DIR, default /tmp/gpushare-sim-<uid>. Whoever comes first creates it:
 *   config       parameters (key=value), written from GPUSHARE_SIM_* at creation unless it is there
 *   segment      struct sim_segment, mapped shared
 *   journal.bin  see journal.h and journal.py
 *   faults       optional, the fault plan; see faults.h
 *
 * Who guards what: `lock` (robust, process-shared) guards every field that is not marked _Atomic.
 * It is held for tens of instructions, never across a wait or a copy. When its owner died,
 * whoever gets it next recomputes the sums from the rows of the living. Fields are written so that
 * a reader without the lock (NVML) sees at worst values of different instants. */
#ifndef GPUSHARE_SIM_SEGMENT_H
#define GPUSHARE_SIM_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_ENV_DIR "GPUSHARE_SIM_DIR"
#define SIM_ENV_DEVICES "GPUSHARE_SIM_DEVICES"                   /* devices=1 */
#define SIM_ENV_MIG_INSTANCES "GPUSHARE_SIM_MIG_INSTANCES"       /* mig_instances=0, per device */
#define SIM_ENV_DEVICE_BYTES "GPUSHARE_SIM_DEVICE_BYTES"         /* device_bytes=2G */
#define SIM_ENV_COPY_BYTES_PER_S "GPUSHARE_SIM_COPY_BYTES_PER_S" /* copy_bytes_per_s=1000000000 */
#define SIM_ENV_LAUNCH_NS "GPUSHARE_SIM_LAUNCH_NS"               /* launch_ns=2000 */
#define SIM_ENV_CONTEXT_BYTES "GPUSHARE_SIM_CONTEXT_BYTES"       /* context_bytes=32M */
#define SIM_ENV_DRIVER_VERSION "GPUSHARE_SIM_DRIVER_VERSION"     /* driver_version=13000 */

#define SIM_SEGMENT_MAGIC 0x4d495355u
#define SIM_SEGMENT_VERSION 3u
#define SIM_DEVICES_MAX 16
#define SIM_PROCESSES_MAX 256
#define SIM_SHARED_MAX 1024
#define SIM_PID_BITS 22 /* no pid is larger (proc(5), pid_max) */

enum sim_device_role {
    SIM_DEVICE_GPU = 0,        /* a whole device */
    SIM_DEVICE_MIG_PARENT = 1, /* a device in MIG mode: no contexts, only its instances have them */
    SIM_DEVICE_MIG_INSTANCE = 2, /* an instance of the device `parent` */
};

enum sim_engine_kind { SIM_ENGINE_COMPUTE, SIM_ENGINE_H2D, SIM_ENGINE_D2H, SIM_ENGINES };

/* Processor sharing: `virtual_ns` advances at 1/active_jobs of real time, so a job of W ns that
 * starts at virtual time V ends when the virtual time reaches V + W, whoever else comes or goes. */
struct sim_engine {
    uint64_t virtual_ns;
    uint64_t updated_ns; /* CLOCK_MONOTONIC of the last change of virtual_ns */
    uint32_t active_jobs;
    uint32_t reserved;
};

struct sim_device {
    uint8_t uuid[16];
    char name[64];
    char pci_bus_id[16];   /* "0000:01:00.0" */
    uint32_t role;         /* enum sim_device_role */
    uint32_t parent;       /* index into devices; itself unless an instance */
    uint32_t instance;     /* 0-based among its siblings */
    _Atomic uint32_t lost; /* fell off the bus: every call answers so */
    uint64_t bytes_total;
    _Atomic uint64_t bytes_used; /* the sum of bytes_used over the process rows */
    struct sim_engine engines[SIM_ENGINES];
};

/* What one process uses of one device. */
struct sim_process_use {
    _Atomic uint64_t bytes_used; /* contexts included */
    uint64_t bytes_kept;         /* of them, what managed memory has left: anybody may have it */
    uint32_t contexts;
    uint32_t active_jobs[SIM_ENGINES];
    uint64_t next_virtual_ns[SIM_ENGINES]; /* when its first running job ends, in virtual time */
};

struct sim_process {
    _Atomic uint32_t pid;   /* 0: free row */
    uint32_t pid_namespace; /* in which it has this pid; see elsewhere.h */
    uint64_t start_ticks;   /* /proc/PID/stat field 22: tells a reused pid */
    _Atomic uint32_t
        doorbell; /* futex of its executor; rung by others when time is redistributed */
    _Atomic uint32_t sleeping;    /* its executor sleeps on the doorbell */
    _Atomic uint64_t wakes_at_ns; /* until when it means to sleep */
    struct sim_process_use use[SIM_DEVICES_MAX];
};

/* Memory that went into a file for others. */
struct sim_shared {
    uint64_t key; /* 0: a free entry. Its place among them is the rest of a division */
    uint64_t bytes;
    uint32_t device;
    int32_t owner;                     /* the row that is charged for it */
    uint32_t holds[SIM_PROCESSES_MAX]; /* by row */
};

struct sim_config {
    uint32_t device_count;  /* physical devices */
    uint32_t mig_instances; /* per device; 0: MIG is off */
    uint64_t device_bytes;
    uint64_t copy_bytes_per_s;
    uint64_t launch_ns;
    uint64_t context_bytes;
    uint32_t driver_version;
    uint32_t reserved;
};

struct sim_segment {
    uint32_t magic;
    uint32_t version;
    struct sim_config config;
    pthread_mutex_t lock;
    uint32_t device_count;  /* entries of `devices`: GPUs, MIG parents and instances */
    uint32_t pid_namespace; /* of whoever made the segment */
    struct sim_device devices[SIM_DEVICES_MAX];
    struct sim_process processes[SIM_PROCESSES_MAX];
    uint64_t shared_serial;
    struct sim_shared shared[SIM_SHARED_MAX];
};

#pragma GCC visibility push(hidden)

/* The directory of this process's simulated machine: environment or default. Never NULL. */
const char *segment_directory(void);

/* Maps the segment, creating directory, config and segment when they are missing. NULL with errno
 * when that is impossible. The same pointer each time; a forked child may go on using it. */
struct sim_segment *segment_open(void);

/* Maps what is there for reading alone; NULL when nothing is there. */
const struct sim_segment *segment_open_readonly(void);

/* Locks, repairing what a dead owner left half done. */
void segment_lock(struct sim_segment *segment);
void segment_unlock(struct sim_segment *segment);

/* This process's row; NULL when all rows are taken by living processes. Takes the lock. */
struct sim_process *segment_join(struct sim_segment *segment);

/* Gives back everything this process has, row included. Takes the lock. */
void segment_leave(struct sim_segment *segment, struct sim_process *self);

/* Frees the rows of processes that are gone. Call with the lock held. True when any was freed. */
bool segment_reap(struct sim_segment *segment);

/* True while the process of this row lives (pid and start time agree). */
bool segment_process_lives(const struct sim_segment *segment, const struct sim_process *process);

/* Its pid as the caller counts; 0 where it has none. */
uint32_t segment_pid_here(const struct sim_segment *segment, const struct sim_process *process);

/* Under which the journal has it: its pid where it lives beside the machine's maker. In another pid
 * namespace another process may have the same pid: the row above it tells them apart. */
uint32_t segment_number(const struct sim_segment *segment, const struct sim_process *process);

/* Takes or gives back bytes of a device. False when they are not there, also after reaping, and
 * without what is kept for anybody. */
bool segment_charge(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                    uint64_t bytes);
void segment_discharge(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       uint64_t bytes);

/* Charged memory is kept until somebody needs it; and what is left of so much is this process's
 * again: false where some of it is gone. */
void segment_keep(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                  uint64_t bytes);
bool segment_take_kept(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       uint64_t bytes);

/* Charged memory of this process may be had by others from now on: its key; 0: too many. Call
 * these with the lock held. */
uint64_t segment_share(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       uint64_t bytes);

/* This process has it too, or once less. Whoever is charged for it hands that on at the end; with
 * the last one the device has its bytes back. False: nobody has it any more. */
bool segment_share_hold(struct sim_segment *segment, struct sim_process *self, uint64_t key);
void segment_share_drop(struct sim_segment *segment, struct sim_process *self, uint64_t key);

/* A process has nothing any more. */
void segment_shared_clear(struct sim_segment *segment, struct sim_process *process);

/* CLOCK_MONOTONIC. */
uint64_t segment_now_ns(void);

#pragma GCC visibility pop
#endif
