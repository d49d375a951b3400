#define _GNU_SOURCE
#include "modules/builtin.h"

#include <stdlib.h>
#include <string.h>

#include "machine/engine.h"
#include "memory/memory.h"

#define BLOCK_WORDS 8192u

static uint64_t word64(const unsigned char *parameters, size_t offset) {
    uint64_t value;
    memcpy(&value, parameters + offset, sizeof value);
    return value;
}

static uint32_t word32(const unsigned char *parameters, size_t offset) {
    uint32_t value;
    memcpy(&value, parameters + offset, sizeof value);
    return value;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* fill(uint32 *out, uint32 value, uint64 n) */
static CUresult perform_fill(const struct context *context, const unsigned char *p) {
    uint32_t block[BLOCK_WORDS];
    uint64_t out = word64(p, 0);
    uint64_t left = word64(p, 16);
    for (uint32_t i = 0; i < BLOCK_WORDS; i++)
        block[i] = word32(p, 8);
    while (left > 0) {
        uint64_t count = smaller(left, BLOCK_WORDS);
        if (!memory_write(context, out, block, count * 4)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        out += count * 4;
        left -= count;
    }
    return CUDA_SUCCESS;
}

/* axpy(float *y, const float *x, float a, uint64 n) */
static CUresult perform_axpy(const struct context *context, const unsigned char *p) {
    float x[BLOCK_WORDS];
    float y[BLOCK_WORDS];
    float a;
    uint64_t y_at = word64(p, 0);
    uint64_t x_at = word64(p, 8);
    uint64_t left = word64(p, 24);
    memcpy(&a, p + 16, sizeof a);
    while (left > 0) {
        uint64_t count = smaller(left, BLOCK_WORDS);
        if (!memory_read(context, x_at, x, count * 4)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (!memory_read(context, y_at, y, count * 4)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        for (uint64_t i = 0; i < count; i++)
            y[i] += a * x[i];
        if (!memory_write(context, y_at, y, count * 4)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        y_at += count * 4;
        x_at += count * 4;
        left -= count;
    }
    return CUDA_SUCCESS;
}

static void multiply(float *c, const float *a, const float *b, size_t n) {
    memset(c, 0, n * n * sizeof *c);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            for (size_t j = 0; j < n; j++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
        }
    }
}

/* matmul(float *c, const float *a, const float *b, uint32 n) */
static CUresult perform_matmul(const struct context *context, const unsigned char *p) {
    size_t n = word32(p, 24);
    size_t bytes = n * n * sizeof(float);
    if (n == 0) return CUDA_SUCCESS;
    if (!memory_reachable(context, word64(p, 0), bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!memory_reachable(context, word64(p, 8), bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!memory_reachable(context, word64(p, 16), bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    float *matrices = malloc(3 * bytes);
    if (matrices == NULL) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    float *a = matrices + n * n;
    float *b = matrices + 2 * n * n;
    bool reached = memory_read(context, word64(p, 8), a, bytes) &&
                   memory_read(context, word64(p, 16), b, bytes);
    if (reached) {
        multiply(matrices, a, b, n);
        reached = memory_write(context, word64(p, 0), matrices, bytes);
    }
    free(matrices);
    return reached ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* checksum(uint64 *out, const uint32 *in, uint64 n): the sum of in[i] * (2 i + 1) */
static CUresult perform_checksum(const struct context *context, const unsigned char *p) {
    uint32_t block[BLOCK_WORDS];
    uint64_t in = word64(p, 8);
    uint64_t n = word64(p, 16);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n;) {
        uint64_t count = smaller(n - i, BLOCK_WORDS);
        if (!memory_read(context, in + i * 4, block, count * 4)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        for (uint64_t j = 0; j < count; j++)
            sum += block[j] * (2 * (i + j) + 1);
        i += count;
    }
    return memory_write(context, word64(p, 0), &sum, sizeof sum) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* spin(uint64 nanoseconds) */
static CUresult perform_nothing(const struct context *context, const unsigned char *p) {
    (void)context;
    (void)p;
    return CUDA_SUCCESS;
}

/* assert_fail() */
static CUresult perform_assert(const struct context *context, const unsigned char *p) {
    (void)context;
    (void)p;
    return CUDA_ERROR_ASSERT;
}

enum builtin_index { FILL, AXPY, MATMUL, CHECKSUM, SPIN, ASSERT_FAIL, POLL_FLAG, BUILTINS };

static const struct builtin builtins[BUILTINS] = {
    [FILL] = {"fill", 3, {{0, 8}, {8, 4}, {16, 8}}, perform_fill},
    [AXPY] = {"axpy", 4, {{0, 8}, {8, 8}, {16, 4}, {24, 8}}, perform_axpy},
    [MATMUL] = {"matmul", 4, {{0, 8}, {8, 8}, {16, 8}, {24, 4}}, perform_matmul},
    [CHECKSUM] = {"checksum", 3, {{0, 8}, {8, 8}, {16, 8}}, perform_checksum},
    [SPIN] = {"spin", 1, {{0, 8}}, perform_nothing},
    [ASSERT_FAIL] = {"assert_fail", 0, {{0, 0}}, perform_assert},
    [POLL_FLAG] = {"poll_flag", 1, {{0, 8}}, perform_nothing},
};

const struct builtin *builtin_find(const char *name) {
    for (int i = 0; i < BUILTINS; i++) {
        if (strcmp(builtins[i].name, name) == 0) return &builtins[i];
    }
    return NULL;
}

const char *builtin_name(const struct op_launch *launch) {
    return launch->builtin->name;
}

uint64_t builtin_work_ns(const struct op_launch *launch) {
    if (launch->builtin == &builtins[SPIN]) {
        uint64_t wanted_ns = word64(launch->parameters, 0);
        return smaller(wanted_ns, 60ull * 1000000000ull);
    }
    return launch->builtin == &builtins[POLL_FLAG] ? ENGINE_NEVER : 0;
}

int builtin_reach(const struct op_launch *launch, struct builtin_reach reach[BUILTIN_REACH_MAX]) {
    const unsigned char *p = launch->parameters;
    switch (launch->builtin - builtins) {
        case FILL:
            reach[0] = (struct builtin_reach){word64(p, 0), 4 * word64(p, 16)};
            return 1;
        case AXPY:
            for (int i = 0; i < 2; i++)
                reach[i] = (struct builtin_reach){word64(p, 8 * (size_t)i), 4 * word64(p, 24)};
            return 2;
        case MATMUL: {
            uint64_t n = word32(p, 24);
            for (int i = 0; i < 3; i++)
                reach[i] = (struct builtin_reach){word64(p, 8 * (size_t)i), 4 * n * n};
            return 3;
        }
        case CHECKSUM:
            reach[0] = (struct builtin_reach){word64(p, 0), 8};
            reach[1] = (struct builtin_reach){word64(p, 8), 4 * word64(p, 16)};
            return 2;
        case POLL_FLAG:
            reach[0] = (struct builtin_reach){word64(p, 0), 4};
            return 1;
        default:
            return 0;
    }
}

uint64_t builtin_amount(const struct op_launch *launch) {
    return launch->builtin == &builtins[SPIN] ? word64(launch->parameters, 0) : 0;
}

bool builtin_poll(const struct context *context, const struct op_launch *launch, CUresult *result) {
    uint32_t flag = 0;
    if (!memory_read(context, word64(launch->parameters, 0), &flag, sizeof flag)) {
        *result = CUDA_ERROR_ILLEGAL_ADDRESS;
        return true;
    }
    return flag != 0;
}

CUresult builtin_perform(const struct context *context, const struct op_launch *launch) {
    return launch->builtin->perform(context, launch->parameters);
}
