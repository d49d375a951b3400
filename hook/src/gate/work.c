#include "gate/work.h"

#include <stddef.h>

#include "base/driver.h"
#include "device/contexts.h"
#include "gate/threads.h"

CUresult work_wait(uint64_t context) {
    const struct driver *cuda = driver_get();
    contexts_lock();
    const struct context *known = contexts_find(context);
    void *handle = known ? known->handle : NULL;
    CUresult result = known ? (CUresult)known->failed_result : CUDA_SUCCESS;
    contexts_unlock();
    if (handle == NULL || result != CUDA_SUCCESS) return result; /* gone, or nothing runs in it */
    result = cuda->context_push(handle);
    if (result != CUDA_SUCCESS) return result;
    threads_synchronise_began();
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    result = cuda->context_synchronize();
    driver_relaxed_end(cuda, mode);
    threads_synchronise_ended((int)result);
    CUcontext popped;
    cuda->context_pop(&popped);
    return result;
}
