/* The launches that the simulated GPU can perform. */
#ifndef GPUSHARE_SIM_BUILTIN_H
#define GPUSHARE_SIM_BUILTIN_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct context;

#define BUILTIN_PARAMETERS_MAX 4
#define BUILTIN_REACH_MAX 3
#define OP_PARAMETER_BYTES 48

struct builtin_parameter {
    uint32_t offset;
    uint32_t bytes;
};

/* Device memory that a launch touches. */
struct builtin_reach {
    uint64_t start;
    uint64_t bytes;
};

struct builtin {
    const char *name;
    int parameter_count;
    struct builtin_parameter parameters[BUILTIN_PARAMETERS_MAX];
    CUresult (*perform)(const struct context *context, const unsigned char *parameters);
};

struct op_launch {
    const struct builtin *builtin;
    unsigned char parameters[OP_PARAMETER_BYTES]; /* laid out as the launch would read them */
};

#pragma GCC visibility push(hidden)

/* NULL when there is none of this name. */
const struct builtin *builtin_find(const char *name);

const char *builtin_name(const struct op_launch *launch);

/* Device time beyond the cost of a launch; ENGINE_NEVER for one that waits for memory. */
uint64_t builtin_work_ns(const struct op_launch *launch);

/* What the launch touches; how many. */
int builtin_reach(const struct op_launch *launch, struct builtin_reach reach[BUILTIN_REACH_MAX]);

/* What the journal notes as amount. */
uint64_t builtin_amount(const struct op_launch *launch);

/* For a launch that waits: true when it need not wait any more. */
bool builtin_poll(const struct context *context, const struct op_launch *launch, CUresult *result);

/* The effect on memory; an error is the context's sticky error. */
CUresult builtin_perform(const struct context *context, const struct op_launch *launch);

#pragma GCC visibility pop
#endif
