/* A launch that only computes, on all multiprocessors: PTX for a real driver. The simulated one
 * loads it, and answers CUDA_ERROR_NOT_SUPPORTED to its launch. */
#pragma once

/* So many rounds by so many blocks of 256 threads take an H200 that long. */
#define COMPUTING_ROUNDS 200000
#define COMPUTING_BLOCKS (132 * 8)
#define COMPUTING_NS 6480000u

static const char computing[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry work(.param .u64 out, .param .u32 rounds) {\n"
    ".reg .f32 a, b; .reg .u32 i, n; .reg .u64 o; .reg .pred p;\n"
    "ld.param.u64 o, [out]; ld.param.u32 n, [rounds];\n"
    "mov.f32 a, 0f3F800000; mov.f32 b, 0f3F000000; mov.u32 i, 0;\n"
    "again: fma.rn.f32 a, a, b, b; fma.rn.f32 a, a, b, b; fma.rn.f32 a, a, b, b;\n"
    "add.u32 i, i, 1; setp.lt.u32 p, i, n; @p bra again;\n"
    "cvta.to.global.u64 o, o; st.global.f32 [o], a; ret; }\n";
