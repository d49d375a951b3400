#include "device/failure.h"

#include "base/bell.h"
#include "base/driver.h"
#include "base/log.h"
#include "device/contexts.h"
#include "device/devices.h"

/* What cuda.h says of these: the process must be ended and started again. */
static const int STICKY[] = {
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUDA_ERROR_EXTERNAL_DEVICE,
};

bool failure_is_sticky(int cu_result) {
    for (size_t i = 0; i < sizeof(STICKY) / sizeof(STICKY[0]); i++)
        if (STICKY[i] == cu_result) return true;
    return false;
}

void failure_of(uint64_t context, int cu_result) {
    int ordinal;
    if (!contexts_fails(context, cu_result, &ordinal)) return;
    const struct driver *cuda = driver_get();
    const char *name = NULL;
    if (cuda == NULL || cuda->error_name((CUresult)cu_result, &name) != CUDA_SUCCESS || !name)
        name = "an error";
    double mib = (double)devices_bytes_allocated(ordinal) / (1 << 20);
    log_error(
        "the GPU work of this process failed (%s, %d) and its GPU context is unusable. "
        "Restart the kernel to go on; that frees %.0f MiB of GPU memory.",
        name, cu_result, mib);
    devices_context_failed(ordinal, cu_result);
    bell_ring(NEWS_CONTEXT_FAILED);
}

void failure_look(int cu_result) {
    if (failure_is_sticky(cu_result)) failure_of(contexts_current_generation(), cu_result);
}

bool failure_in_current_context(void) {
    if (atomic_load_explicit(&contexts_failed, memory_order_relaxed) == 0) return false;
    return contexts_has_failed(contexts_current());
}
