/* What every exported function does before its implementation: the generated entry.c reads one
 * word; everything unusual (not initialised, a forked child, a fault plan) is behind it. */
#ifndef GPUSHARE_SIM_ENTRY_H
#define GPUSHARE_SIM_ENTRY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum entry_flag {
    ENTRY_UNINITIALISED = 1,
    ENTRY_FORKED = 2, /* a child of a process that had called cuInit */
    ENTRY_FAULTS = 4, /* a fault plan is in force */
};

struct entry_row {
    const char *base;
    int cuda_version;
    bool per_thread; /* a _ptsz or _ptds variant */
    bool anytime;    /* callable before cuInit */
    bool simulated;
    void *address;
};

#pragma GCC visibility push(hidden)

extern const struct entry_row entry_table[]; /* sorted by base name, then CUDA version */
extern const unsigned entry_count;

extern _Atomic uint32_t entry_word;

/* CUDA_SUCCESS: go on. */
CUresult entry_slow(unsigned index);
CUresult entry_not_simulated(unsigned index);

#pragma GCC visibility pop
#endif
