#define _GNU_SOURCE
#include "machine/journal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(struct journal_record) == 64, "journal.py reads 64 bytes");
_Static_assert(sizeof(struct journal_header) == 64, "journal.py reads 64 bytes");

static struct journal_header *_Atomic journal;

static size_t journal_bytes(void) {
    return sizeof(struct journal_header) + (size_t)JOURNAL_RECORDS * sizeof(struct journal_record);
}

/* Sizes a fresh file and writes its header; the file lock keeps two creators apart. */
static void prepare(int fd, mode_t mode) {
    struct stat status;
    flock(fd, LOCK_EX);
    if (fstat(fd, &status) == 0 && (size_t)status.st_size < journal_bytes()) {
        struct journal_header header = {.magic = JOURNAL_MAGIC, .capacity = JOURNAL_RECORDS};
        if (fchmod(fd, mode) != 0 || ftruncate(fd, (off_t)journal_bytes()) != 0 ||
            pwrite(fd, &header, sizeof header, 0) != sizeof header) {
            /* Then the size check in journal_open refuses it. */
        }
    }
    flock(fd, LOCK_UN);
}

void journal_open(const char *directory) {
    char path[PATH_MAX];
    struct stat status;
    if (stat(directory, &status) != 0) return;
    snprintf(path, sizeof path, "%s/journal.bin", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, status.st_mode & 0666);
    if (fd < 0) return;
    prepare(fd, status.st_mode & 0666);
    if (fstat(fd, &status) == 0 && (size_t)status.st_size >= journal_bytes()) {
        void *address = mmap(NULL, journal_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (address != MAP_FAILED) atomic_store(&journal, address);
    }
    close(fd);
}

void journal_append(const struct journal_record *record) {
    struct journal_header *header = atomic_load_explicit(&journal, memory_order_acquire);
    if (header == NULL) return;
    uint64_t index = atomic_fetch_add(&header->written, 1) % JOURNAL_RECORDS;
    struct journal_record *slot = (struct journal_record *)(header + 1) + index;
    atomic_store_explicit(&slot->kind, 0, memory_order_relaxed);
    slot->submitted_ns = record->submitted_ns;
    slot->started_ns = record->started_ns;
    slot->ended_ns = record->ended_ns;
    slot->pid = record->pid;
    slot->device = record->device;
    slot->stream = record->stream;
    slot->amount = record->amount;
    memcpy(slot->name, record->name, sizeof slot->name);
    atomic_store_explicit(&slot->kind, atomic_load_explicit(&record->kind, memory_order_relaxed),
                          memory_order_release);
}

void journal_name(struct journal_record *record, const char *name) {
    memset(record->name, 0, sizeof record->name);
    memcpy(record->name, name, strnlen(name, sizeof record->name));
}
