/* cuIpcOpenMemHandle and cuIpcCloseMemHandle. */
#include <string.h>
#include <unistd.h>

#include "allocate/memory.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/log.h"
#include "base/uncancelled.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "device/streams.h"
#include "gate/gate.h"
#include "gate/work.h"
#include "memory/chunks.h"
#include "memory/device_memory.h"
#include "sharing/ipc.h"
#include "sharing/ipc_client.h"
#include "sharing/ipc_imports.h"
#include "sharing/ipc_server.h"

/* ---- mapping ----------------------------------------------------------------------------------
 */

/* What is mapped at the beginning of the reserved addresses, or all of it. False: it is not gone.
 */
static bool unmap(const struct import *mapped, uint64_t mapped_bytes) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    if (mapped_bytes > 0) result = cuda->memory_unmap(mapped->address, mapped_bytes);
    cuda->address_free(mapped->address, mapped->bytes);
    return result == CUDA_SUCCESS;
}

/* And the exporter hears of it. */
static void take_down(struct import *mapped) {
    if (unmap(mapped, mapped->bytes)) ipc_client_tell(&mapped->connection, IPC_WORD_BYE);
    descriptor_close(&mapped->connection);
}

/* The mapping alone keeps the memory. The descriptor is closed by the caller. */
static CUresult map_piece(uint64_t address, uint64_t bytes, int fd) {
    const struct driver *cuda = driver_get();
    CUmemGenericAllocationHandle handle;
    CUresult result = cuda->memory_import(&handle, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) return result;
    result = cuda->memory_map(address, bytes, 0, handle, 0);
    cuda->memory_release(handle);
    return result;
}

/* Maps the pieces of a packet behind what is there, and closes its descriptors whatever happens. */
static CUresult map_batch(const struct import *mapped, uint64_t *mapped_bytes,
                          const struct ipc_batch *batch, const int *descriptors) {
    UNCANCELLED();
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (result == CUDA_SUCCESS)
            result =
                map_piece(mapped->address + *mapped_bytes, batch->piece_bytes[i], descriptors[i]);
        if (result == CUDA_SUCCESS) *mapped_bytes += batch->piece_bytes[i];
        close(descriptors[i]);
    }
    return result;
}

static CUresult result_of(enum ipc_client_answer answer) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (answer == IPC_CLIENT_HERE) return CUDA_SUCCESS;
    if (answer == IPC_CLIENT_NO_ROOM && !atomic_flag_test_and_set(&said))
        log_error(
            "this process has no file descriptor left to open another one's GPU memory "
            "(cuIpcOpenMemHandle). Raise its limit of open files (ulimit -n) and restart it.");
    log_debug("ipc: memory of another process is not to be had (%d)", (int)answer);
    if (answer == IPC_CLIENT_CANCELLED) return (CUresult)GATE_CANCELLED_RESULT;
    return answer == IPC_CLIENT_NO_BLOCK ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_MAP_FAILED;
}

/* Packet by packet, so that few descriptors are open at any time. On failure nothing is mapped. */
static CUresult map_block(struct ipc_client *client, const struct ipc_handle *handle, int own,
                          struct import *mapped) {
    const struct driver *cuda = driver_get();
    struct ipc_batch batch;
    int descriptors[IPC_BATCH_MAX];
    uint64_t mapped_bytes = 0;
    CUresult result = result_of(ipc_client_next(client, handle, &batch, descriptors));
    if (result != CUDA_SUCCESS) return result;
    CUdeviceptr reserved = 0;
    mapped->bytes = batch.bytes;
    mapped->device = devices_visible(batch.device_uuid);
    if (mapped->device < 0) mapped->device = own; /* the context's own, where it is not visible */
    result = cuda->address_reserve(&reserved, mapped->bytes, CHUNK_GRANULE, 0, 0);
    mapped->address = reserved;
    if (result != CUDA_SUCCESS) {
        for (uint32_t i = 0; i < batch.count; i++)
            close(descriptors[i]);
        return CUDA_ERROR_MAP_FAILED;
    }
    result = map_batch(mapped, &mapped_bytes, &batch, descriptors);
    while (result == CUDA_SUCCESS && !ipc_client_is_done(client)) {
        result = result_of(ipc_client_next(client, handle, &batch, descriptors));
        if (result == CUDA_SUCCESS) result = map_batch(mapped, &mapped_bytes, &batch, descriptors);
    }
    if (result == CUDA_SUCCESS)
        result = device_memory_give_access(mapped->address, mapped->bytes, mapped->device, own);
    if (result == CUDA_SUCCESS) return result;
    log_debug("ipc: the driver answers %d to another process's memory", (int)result);
    mapped->is_lost = !unmap(mapped, mapped_bytes);
    return result == (CUresult)GATE_CANCELLED_RESULT ? result : CUDA_ERROR_MAP_FAILED;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static CUresult open_new(const struct ipc_handle *handle, void *context, uint64_t *address) {
    struct ipc_client client;
    struct import mapped = {
        .server = handle->server,
        .block = handle->block,
        .context = context,
        .generation = contexts_generation(context),
    };
    CUresult result = result_of(ipc_client_ask(&client, handle));
    if (result == CUDA_SUCCESS)
        result = map_block(&client, handle, memory_current_device(), &mapped);
    ipc_client_keep(&client, &mapped.connection);
    if (result != CUDA_SUCCESS) {
        if (!mapped.is_lost) ipc_client_tell(&mapped.connection, IPC_WORD_BYE);
        descriptor_close(&mapped.connection);
        return result;
    }
    const enum imports_answer answer = imports_add(&mapped, handle, address);
    if (answer != IMPORTS_ADDED) take_down(&mapped);
    return answer == IMPORTS_NO_ROOM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* ---- closing ----------------------------------------------------------------------------------
 */

/* A capture must not be synchronised: what was closed meanwhile goes with the next call here. */
static CUresult unmap_unused(void) {
    struct import unused;
    CUresult result = CUDA_SUCCESS;
    while (!streams_capture_anywhere() && imports_take(0, &unused)) {
        const CUresult waited = work_wait(unused.generation);
        if (waited == CUDA_ERROR_NOT_READY && imports_put_back(&unused)) break;
        if (waited != CUDA_SUCCESS) result = waited;
        take_down(&unused);
    }
    return result;
}

bool ipc_open(uint64_t *address, const void *encoded, unsigned int flags, int *cu_result) {
    struct ipc_handle handle;
    const struct driver *cuda = driver_get();
    void *context = contexts_current();
    const enum ipc_handle_kind kind = ipc_handle_decode(encoded, &handle);
    if (kind == IPC_HANDLE_FOREIGN || cuda == NULL) return false;
    if (context == NULL)
        *cu_result = CUDA_ERROR_INVALID_CONTEXT;
    else if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        *cu_result = CUDA_ERROR_INVALID_VALUE;
    else if (kind == IPC_HANDLE_DAMAGED)
        *cu_result = CUDA_ERROR_INVALID_HANDLE;
    else if (ipc_server_is_here(handle.server))
        *cu_result = CUDA_ERROR_INVALID_CONTEXT; /* memory of this very process */
    else if (!driver_can_move(cuda) || !driver_can_share(cuda))
        *cu_result = CUDA_ERROR_NOT_SUPPORTED;
    else if (contexts_know(context) &&
             imports_reopen(&handle, contexts_generation(context), address))
        *cu_result = CUDA_SUCCESS;
    else
        *cu_result = (int)open_new(&handle, context, address);
    unmap_unused();
    return true;
}

/* What exit handlers close goes with the process. */
bool ipc_close(uint64_t address, int *cu_result) {
    if (memory_current_device() < 0) return false; /* the driver refuses that */
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    if (!imports_close(address)) return imports_cover(address);
    *cu_result = ending_has_begun() ? CUDA_SUCCESS : (int)unmap_unused();
    return true;
}

void ipc_context_ended(uint64_t generation) {
    struct import taken;
    while (!ending_has_begun() && imports_take(generation, &taken))
        take_down(&taken);
}
