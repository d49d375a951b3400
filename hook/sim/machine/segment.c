#define _GNU_SOURCE
#include "machine/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "machine/config.h"
#include "machine/elsewhere.h"

static char directory_path[PATH_MAX - 32];
static pthread_once_t directory_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t open_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards mapped_segment's first set */
static struct sim_segment *_Atomic mapped_segment;

uint64_t segment_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void find_directory(void) {
    const char *named = getenv(SIM_ENV_DIR);
    if (named != NULL && named[0] != '\0') {
        snprintf(directory_path, sizeof directory_path, "%s", named);
    } else {
        snprintf(directory_path, sizeof directory_path, "/tmp/gpushare-sim-%u", (unsigned)getuid());
    }
}

const char *segment_directory(void) {
    pthread_once(&directory_once, find_directory);
    return directory_path;
}

/* Deterministic: the same machine has the same UUIDs in every run. */
static void name_device(struct sim_device *device, uint32_t parent, uint32_t instance) {
    static const uint8_t prefix[12] = {0x51, 0x3d, 0x47, 0x50, 0x55, 0x00,
                                       0x40, 0x00, 0x80, 0x00, 0x00, 0x00};
    memcpy(device->uuid, prefix, sizeof prefix);
    device->uuid[12] = (uint8_t)device->role;
    device->uuid[13] = 0;
    device->uuid[14] = (uint8_t)parent;
    device->uuid[15] = (uint8_t)(instance + 1);
    snprintf(device->pci_bus_id, sizeof device->pci_bus_id, "0000:%02x:00.0", parent + 1);
    if (device->role == SIM_DEVICE_MIG_INSTANCE) {
        snprintf(device->name, sizeof device->name, "Simulated GPU MIG %u", instance);
    } else {
        snprintf(device->name, sizeof device->name, "Simulated GPU");
    }
}

static void add_device(struct sim_segment *segment, uint32_t role, uint32_t gpu, uint32_t parent,
                       uint32_t instance, uint64_t bytes) {
    struct sim_device *device = &segment->devices[segment->device_count++];
    device->role = role;
    device->parent = parent;
    device->instance = instance;
    device->bytes_total = bytes;
    name_device(device, gpu, instance);
}

static void fill_segment(struct sim_segment *segment) {
    segment->version = SIM_SEGMENT_VERSION;
    segment->pid_namespace = elsewhere_own_namespace();
    config_load(segment_directory(), &segment->config);
    uint32_t instances = segment->config.mig_instances;
    for (uint32_t gpu = 0; gpu < segment->config.device_count; gpu++) {
        uint32_t index = segment->device_count;
        uint64_t bytes = segment->config.device_bytes;
        add_device(segment, instances > 0 ? SIM_DEVICE_MIG_PARENT : SIM_DEVICE_GPU, gpu, index, 0,
                   bytes);
        for (uint32_t i = 0; i < instances; i++) {
            uint64_t share = bytes / instances & ~((2ull << 20) - 1);
            add_device(segment, SIM_DEVICE_MIG_INSTANCE, gpu, index, i, share);
        }
    }
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&segment->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    segment->magic = SIM_SEGMENT_MAGIC;
}

static struct sim_segment *map_segment(int fd, int protection) {
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size < (off_t)sizeof(struct sim_segment)) return NULL;
    void *address = mmap(NULL, sizeof(struct sim_segment), protection, MAP_SHARED, fd, 0);
    return address == MAP_FAILED ? NULL : address;
}

static bool segment_is_ours(const struct sim_segment *segment) {
    return segment->magic == SIM_SEGMENT_MAGIC && segment->version == SIM_SEGMENT_VERSION;
}

/* Creates the segment in a file of its own and renames it, so that nobody maps half of one. The
 * file's mode follows the directory's, so that a machine can be shared by several users. */
static bool create_segment(const char *path, mode_t mode) {
    char fresh[PATH_MAX + 8];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool made = fchmod(fd, mode) == 0 && ftruncate(fd, sizeof(struct sim_segment)) == 0;
    struct sim_segment *segment = made ? map_segment(fd, PROT_READ | PROT_WRITE) : NULL;
    close(fd);
    if (segment == NULL) return false;
    fill_segment(segment);
    munmap(segment, sizeof *segment);
    return rename(fresh, path) == 0;
}

static struct sim_segment *open_existing(const char *path, int flags, int protection) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) return NULL;
    struct sim_segment *segment = map_segment(fd, protection);
    close(fd);
    if (segment != NULL && !segment_is_ours(segment)) {
        munmap(segment, sizeof *segment);
        segment = NULL;
    }
    return segment;
}

/* A directory that somebody else could have prepared for us is not ours to trust. */
static bool prepare_directory(const char *directory, mode_t *file_mode) {
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) return false;
    struct stat status;
    if (stat(directory, &status) != 0) return false;
    if (getenv(SIM_ENV_DIR) == NULL && status.st_uid != getuid()) {
        errno = EPERM;
        return false;
    }
    *file_mode = status.st_mode & 0666;
    return true;
}

struct sim_segment *segment_open(void) {
    struct sim_segment *known = atomic_load(&mapped_segment);
    if (known != NULL) return known;
    pthread_mutex_lock(&open_lock);
    known = atomic_load(&mapped_segment);
    mode_t file_mode = 0600;
    if (known == NULL && prepare_directory(segment_directory(), &file_mode)) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/lock", segment_directory());
        int guard = open(path, O_RDWR | O_CREAT | O_CLOEXEC, file_mode);
        if (guard >= 0) flock(guard, LOCK_EX);
        snprintf(path, sizeof path, "%s/segment", segment_directory());
        known = open_existing(path, O_RDWR, PROT_READ | PROT_WRITE);
        if (known == NULL && create_segment(path, file_mode))
            known = open_existing(path, O_RDWR, PROT_READ | PROT_WRITE);
        if (guard >= 0) close(guard);
        atomic_store(&mapped_segment, known);
    }
    pthread_mutex_unlock(&open_lock);
    return known;
}

const struct sim_segment *segment_open_readonly(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/segment", segment_directory());
    return open_existing(path, O_RDONLY, PROT_READ);
}

/* After its owner died: every sum is recomputed from the rows. */
static void repair(struct sim_segment *segment) {
    for (uint32_t d = 0; d < segment->device_count; d++) {
        uint64_t bytes = 0;
        uint32_t jobs[SIM_ENGINES] = {0};
        for (int p = 0; p < SIM_PROCESSES_MAX; p++) {
            const struct sim_process *process = &segment->processes[p];
            if (atomic_load(&process->pid) == 0) continue;
            bytes += atomic_load(&process->use[d].bytes_used);
            for (int e = 0; e < SIM_ENGINES; e++)
                jobs[e] += process->use[d].active_jobs[e];
        }
        atomic_store(&segment->devices[d].bytes_used, bytes);
        for (int e = 0; e < SIM_ENGINES; e++)
            segment->devices[d].engines[e].active_jobs = jobs[e];
    }
}

void segment_lock(struct sim_segment *segment) {
    if (pthread_mutex_lock(&segment->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&segment->lock);
        segment_reap(segment);
        repair(segment);
    }
}

void segment_unlock(struct sim_segment *segment) {
    pthread_mutex_unlock(&segment->lock);
}
