#include "sharing/ipc.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "allocate/backing.h"
#include "allocate/memory.h"
#include "base/driver.h"
#include "base/log.h"
#include "device/devices.h"
#include "gate/gate.h"
#include "memory/blocks.h"
#include "memory/device_memory.h"
#include "sharing/ipc_exports.h"
#include "sharing/ipc_imports.h"
#include "sharing/ipc_server.h"

/* ---- what can go wrong ------------------------------------------------------------------------
 */

static bool descriptors_are_out(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd < 0;
}

/* Once: whoever meets it meets it again and again. */
static void say_why_not(CUresult result) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&said)) return;
    if (descriptors_are_out())
        log_error(
            "this process has no file descriptor left to share its GPU memory with others "
            "(cuIpcGetMemHandle takes one for each piece of it, of at most 64 MiB). Raise its "
            "limit of open files (ulimit -n) and restart it.");
    else
        log_error(
            "the GPU memory of this process cannot be shared with others (cuIpcGetMemHandle, error "
            "%d). Start it with GPUSHARE_MEMORY=off in its environment to share memory; it then "
            "keeps its GPU memory between turns.",
            (int)result);
}

/* ---- cuIpcGetMemHandle ------------------------------------------------------------------------
 */

static CUresult export_block(const struct allocated *of, uint64_t block_id, uint64_t *number) {
    struct export block = {.address = of->block_address,
                           .bytes = of->block_bytes,
                           .block_id = block_id,
                           .device = of->device};
    CUresult result = CUDA_ERROR_INVALID_DEVICE;
    if (devices_uuid_of(of->device, block.device_uuid)) result = (CUresult)exports_make(&block);
    if (result == CUDA_ERROR_ILLEGAL_STATE) return CUDA_ERROR_INVALID_VALUE; /* it is freed now */
    if (result == CUDA_SUCCESS && !exports_add(&block, number)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) say_why_not(result);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ? result
                                                                        : CUDA_ERROR_MAP_FAILED;
}

/* The block may be freed by another thread meanwhile: then it must not be found under its address
 * by whoever has that next. */
static CUresult number_of(const struct allocated *of, uint64_t block_id, uint64_t *number) {
    if (exports_find(of->block_address, number)) return CUDA_SUCCESS;
    const CUresult result = export_block(of, block_id, number);
    struct allocated again;
    if (result != CUDA_SUCCESS || (blocks_find(of->address, &again) && again.id == of->id))
        return result;
    exports_forget(of->block_address);
    return CUDA_ERROR_INVALID_VALUE;
}

/* The block stays while its descriptors are made, and as long as there are such. */
static CUresult make_handle(void *encoded, const struct allocated *of) {
    struct ipc_handle handle = {
        .offset = of->address - of->block_address,
        .bytes = of->bytes,
    };
    uint64_t block_id = 0;
    if (!blocks_share(of->address, &block_id)) return CUDA_ERROR_MAP_FAILED;
    CUresult result = CUDA_ERROR_MAP_FAILED;
    if (ipc_server_start(&handle))
        result = number_of(of, block_id, &handle.block);
    else
        say_why_not(CUDA_ERROR_OPERATING_SYSTEM);
    blocks_unshare(of->block_address, block_id);
    if (result == CUDA_SUCCESS) ipc_handle_encode(&handle, encoded);
    exports_tell();
    return result;
}

bool ipc_get(void *handle, uint64_t address, const char *call_name, int *cu_result) {
    struct allocated of;
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    if (memory_current_device() < 0) return false;
    if (!blocks_find(address, &of)) return blocks_cover(address) || imports_cover(address);
    if (handle == NULL) return true;
    if (!device_memory_shareable(of.device)) {
        say_why_not(CUDA_ERROR_NOT_SUPPORTED);
        return true;
    }
    const struct gate_call call = {GATE_ALLOC, GATE_STREAM_LEGACY, NULL, call_name};
    const enum gate_answer answer = gate_enter(call);
    *cu_result = GATE_CANCELLED_RESULT;
    if (answer == GATE_CANCELLED) return true;
    *cu_result = (int)make_handle(handle, &of);
    if (answer == GATE_PASS) gate_leave(call, 0);
    return true;
}

/* ---- fork -------------------------------------------------------------------------------------
 */

void ipc_after_fork(void) {
    ipc_server_after_fork();
    exports_after_fork();
    imports_after_fork();
}
