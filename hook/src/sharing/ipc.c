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
            "(cuIpcGetMemHandle takes one for each 8 to 64 MiB). Raise its limit of open files "
            "(ulimit -n) and restart it.");
    else
        log_error(
            "the GPU memory of this process cannot be shared with others (cuIpcGetMemHandle, error "
            "%d). Start it with GPUSHARE_MEMORY=off in its environment to share memory; it then "
            "keeps its GPU memory between turns.",
            (int)result);
}

/* ---- cuIpcGetMemHandle ------------------------------------------------------------------------
 */

/* Room for them was made by what a block can have at most. */
static void gather(const struct chunk *chunk, void *argument) {
    struct export *block = argument;
    if (chunk->handle != 0)
        block->pieces[block->piece_count++] = (struct export_piece){
            .descriptor = {.fd = -1}, .handle = chunk->handle, .bytes = chunk->bytes};
}

static CUresult export_piece(struct export_piece *piece) {
    const struct driver *cuda = driver_get();
    int fd = -1;
    const CUresult result =
        cuda->memory_export(&fd, piece->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) return result;
    return descriptor_adopt(&piece->descriptor, fd, 0) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* A descriptor for each chunk of the block. They are on the device and stay there. */
static CUresult export_pieces(struct export *block) {
    blocks_visit(block->address, gather, block);
    uint64_t bytes = 0;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < block->piece_count && result == CUDA_SUCCESS; i++) {
        bytes += block->pieces[i].bytes;
        result = export_piece(&block->pieces[i]);
    }
    if (result == CUDA_SUCCESS && bytes != block->bytes) result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult export_block(const struct allocated *of, uint64_t *number) {
    const size_t pieces_max = (size_t)(of->block_bytes / CHUNK_GRANULE);
    struct export block = {.address = of->block_address, .bytes = of->block_bytes};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    block.pieces = malloc(pieces_max * sizeof *block.pieces);
    if (block.pieces != NULL && devices_uuid_of(of->device, block.device_uuid))
        result = export_pieces(&block);
    if (result != CUDA_SUCCESS)
        exports_drop_pieces(&block);
    else if (!exports_add(&block, number))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) say_why_not(result);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ? result
                                                                        : CUDA_ERROR_MAP_FAILED;
}

/* The block may be freed by another thread meanwhile: then it must not be found under its address
 * by whoever has that next. */
static CUresult number_of(const struct allocated *of, uint64_t *number) {
    if (exports_find(of->block_address, number)) return CUDA_SUCCESS;
    const CUresult result = export_block(of, number);
    struct allocated again;
    if (result != CUDA_SUCCESS || (blocks_find(of->address, &again) && again.id == of->id))
        return result;
    exports_forget(of->block_address);
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_handle(void *encoded, const struct allocated *of) {
    struct ipc_handle handle = {
        .offset = of->address - of->block_address,
        .bytes = of->bytes,
    };
    if (!backing_fix(of->address)) return CUDA_ERROR_MAP_FAILED;
    if (!ipc_server_start(&handle)) {
        say_why_not(CUDA_ERROR_OPERATING_SYSTEM);
        return CUDA_ERROR_MAP_FAILED;
    }
    const CUresult result = number_of(of, &handle.block);
    if (result == CUDA_SUCCESS) ipc_handle_encode(&handle, encoded);
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
