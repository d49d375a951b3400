// The launches that the simulated GPU knows by name, as real CUDA: the same module loads on a real
// driver, so one test asks both for the same results.
//
// Every function is right for any grid and block. Floating-point products and sums are rounded one
// by one (-fmad=false), so that a result equals the same loop in plain C or NumPy bit for bit.
// hook/sim/builtins.sh makes builtins.ptx from this file.

#include <cassert>
#include <cstdint>

using uint64 = unsigned long long;
using uint32 = unsigned int;

namespace {

// A launch that spins must end: nobody can take a device back from one that does not.
constexpr uint64 kSpinNsMax = 60ULL * 1000 * 1000 * 1000;

__device__ uint64 thread_in_block() {
    return threadIdx.x + uint64(blockDim.x) * (threadIdx.y + uint64(blockDim.y) * threadIdx.z);
}

__device__ uint64 threads_per_block() {
    return uint64(blockDim.x) * blockDim.y * blockDim.z;
}

__device__ uint64 block_in_grid() {
    return blockIdx.x + uint64(gridDim.x) * (blockIdx.y + uint64(gridDim.y) * blockIdx.z);
}

__device__ uint64 first_index() { return block_in_grid() * threads_per_block() + thread_in_block(); }

__device__ uint64 stride() {
    return uint64(gridDim.x) * gridDim.y * gridDim.z * threads_per_block();
}

__device__ uint64 global_timer_ns() {
    uint64 now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    return now_ns;
}

}  // namespace

// out[i] = value
extern "C" __global__ void fill(uint32* out, uint32 value, uint64 n) {
    for (uint64 i = first_index(); i < n; i += stride()) out[i] = value;
}

// y[i] = a * x[i] + y[i]
extern "C" __global__ void axpy(float* y, const float* x, float a, uint64 n) {
    for (uint64 i = first_index(); i < n; i += stride()) y[i] = a * x[i] + y[i];
}

// c = a b, all of them n x n and row-major; the inner sum runs upwards.
extern "C" __global__ void matmul(float* c, const float* a, const float* b, uint32 n) {
    const uint64 cells = uint64(n) * n;
    for (uint64 cell = first_index(); cell < cells; cell += stride()) {
        const uint64 row = cell / n;
        const uint64 column = cell % n;
        float sum = 0.0f;
        for (uint64 k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
        c[cell] = sum;
    }
}

// *out = sum of in[i] * (2 i + 1), modulo 2^64. The first block does all the work, so that *out is
// written once and never has to be cleared beforehand.
extern "C" __global__ void checksum(uint64* out, const uint32* in, uint64 n) {
    __shared__ uint64 total;
    if (block_in_grid() != 0) return;
    if (thread_in_block() == 0) total = 0;
    __syncthreads();
    uint64 part = 0;
    for (uint64 i = thread_in_block(); i < n; i += threads_per_block()) part += in[i] * (2 * i + 1);
    atomicAdd(&total, part);
    __syncthreads();
    if (thread_in_block() == 0) *out = total;
}

// Keeps the device busy for that long.
extern "C" __global__ void spin(uint64 nanoseconds) {
    const uint64 wanted_ns = nanoseconds < kSpinNsMax ? nanoseconds : kSpinNsMax;
    const uint64 begin_ns = global_timer_ns();
    while (global_timer_ns() - begin_ns < wanted_ns) {
    }
}

// Fails a device-side assertion: the context has a sticky CUDA_ERROR_ASSERT from then on.
extern "C" __global__ void assert_fail() { assert(false && "asked to fail"); }

// Returns when somebody, the host or another launch, has made *flag different from zero.
extern "C" __global__ void poll_flag(volatile uint32* flag) {
    while (*flag == 0) __nanosleep(1000);
}
