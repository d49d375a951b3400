/* The journal: what each process did on which device, and when. A file mapped by all processes of
 * a machine, appended to without a lock. journal.py reads it. */
#ifndef GPUSHARE_SIM_JOURNAL_H
#define GPUSHARE_SIM_JOURNAL_H

#include <stdatomic.h>
#include <stdint.h>

#define JOURNAL_MAGIC 0x4c4e524a4d495355ull
#define JOURNAL_RECORDS (1u << 21) /* a ring; sparse until it is used */

enum journal_kind {
    JOURNAL_LAUNCH = 1,
    JOURNAL_COPY_H2D = 2,
    JOURNAL_COPY_D2H = 3,
    JOURNAL_COPY_D2D = 4,
    JOURNAL_MEMSET = 5,
    JOURNAL_HOST_FUNCTION = 6,
    JOURNAL_GRAPH_LAUNCH = 7,
    JOURNAL_ALLOC = 8,
    JOURNAL_FREE = 9,
    JOURNAL_MAP = 10,
    JOURNAL_UNMAP = 11,
    JOURNAL_CONTEXT_CREATE = 12,
    JOURNAL_CONTEXT_DESTROY = 13,
    JOURNAL_PREFETCH = 14,
    JOURNAL_FAULT = 15, /* memory was taken from under work that ran; bytes of it */
};

/* Little-endian, 64 bytes. A record whose kind is 0 was reserved and not finished. */
struct journal_record {
    uint64_t submitted_ns; /* CLOCK_MONOTONIC */
    uint64_t started_ns;
    uint64_t ended_ns;
    uint32_t pid;
    uint32_t device; /* index in the segment */
    _Atomic uint32_t kind;
    uint32_t stream; /* number of the stream in its process; 0 is the legacy stream */
    uint64_t amount; /* bytes; for spin its nanoseconds */
    char name[16];   /* truncated, zero-padded */
};

struct journal_header {
    uint64_t magic;
    uint64_t capacity; /* records in the ring */
    _Atomic uint64_t written;
    uint64_t reserved[5];
};

#pragma GCC visibility push(hidden)

/* Maps the journal of `directory`. Without it (disk full, no permission) nothing is recorded. */
void journal_open(const char *directory);

/* Appends a copy of `record`; its kind is stored last. */
void journal_append(const struct journal_record *record);

/* Truncated and padded with zeros; a full name has no zero at its end. */
void journal_name(struct journal_record *record, const char *name);

#pragma GCC visibility pop
#endif
