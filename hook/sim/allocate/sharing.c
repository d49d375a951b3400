/* Memory for several processes: a chunk becomes a POSIX file descriptor, and a chunk again
 * elsewhere.
 *
 * With its first export the bytes of a chunk move into a file in memory, under the same storage
 * address. Behind them is a page that says what they are. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine/journal.h"
#include "memory/chunk.h"
#include "memory/descriptor.h"
#include "memory/memory.h"
#include "process/process.h"
#include "sim_api.h"

#define LABEL_MAGIC 0x6b6e7568636d6973ull
#define LABEL_BYTES 4096

struct label {
    uint64_t magic;
    uint64_t bytes;
    uint32_t device; /* index in the segment */
    uint64_t share_key;
    CUmemAllocationProp properties;
};

static pthread_mutex_t sharing_lock = PTHREAD_MUTEX_INITIALIZER; /* one first export at a time */

static bool move_into_file(struct chunk *chunk) {
    struct label label = {
        .magic = LABEL_MAGIC,
        .bytes = chunk->bytes,
        .device = chunk->device,
        .properties = chunk->properties,
    };
    int fd = memfd_create("gpushare-sim-chunk", MFD_CLOEXEC);
    if (fd < 0) return false;
    segment_lock(process_segment);
    if (chunk->share_key == 0)
        chunk->share_key = segment_share(process_segment, process_row, chunk->device, chunk->bytes);
    segment_unlock(process_segment);
    label.share_key = chunk->share_key;
    if (ftruncate(fd, (off_t)(chunk->bytes + LABEL_BYTES)) != 0 ||
        pwrite(fd, &label, sizeof label, (off_t)chunk->bytes) != (ssize_t)sizeof label ||
        !memory_storage_share(chunk->storage, chunk->bytes, fd)) {
        close(fd);
        return false;
    }
    chunk->fd = fd;
    chunk->shared = true;
    return true;
}

static CUresult export_held(struct chunk *chunk, CUmemAllocationHandleType type, int *exported) {
    if (atomic_load(&chunk->handles) == 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (chunk->properties.requestedHandleTypes & type) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sharing_lock);
    bool shared = chunk->shared || move_into_file(chunk);
    int fd = shared ? descriptor_of(chunk->fd) : -1;
    pthread_mutex_unlock(&sharing_lock);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *exported = fd;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemExportToShareableHandle(void *shareableHandle,
                                          CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
    struct chunk *chunk = shareableHandle != NULL && flags == 0 ? chunk_hold(handle) : NULL;
    if (chunk == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = export_held(chunk, handleType, shareableHandle);
    chunk_drop(chunk);
    return result;
}

static bool read_label(int fd, struct label *label) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= LABEL_BYTES)
        return false;
    const uint64_t bytes = (uint64_t)status.st_size - LABEL_BYTES;
    return pread(fd, label, sizeof *label, (off_t)bytes) == (ssize_t)sizeof *label &&
           label->magic == LABEL_MAGIC && label->bytes == bytes;
}

/* The memory is charged to whoever created it, as long as that process has it. */
CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                            CUmemAllocationHandleType shHandleType) {
    struct label label;
    if (handle == NULL || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (!read_label((int)(intptr_t)osHandle, &label)) return CUDA_ERROR_UNKNOWN;
    const int ordinal = process_ordinal_of(label.device);
    if (ordinal < 0) return CUDA_ERROR_NOT_SUPPORTED;
    int fd = descriptor_again((int)(intptr_t)osHandle);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    void *storage = mmap(NULL, label.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CUmemGenericAllocationHandle made;
    struct chunk *chunk = storage != MAP_FAILED ? chunk_new(&made) : NULL;
    if (chunk == NULL) {
        if (storage != MAP_FAILED) munmap(storage, label.bytes);
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->bytes = label.bytes;
    chunk->device = label.device;
    chunk->properties = label.properties;
    chunk->properties.location.id = ordinal;
    chunk->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE; /* it is not passed on */
    chunk->properties.allocFlags.gpuDirectRDMACapable = 0;
    chunk->storage = storage;
    chunk->shared = chunk->imported = true;
    chunk->fd = fd;
    segment_lock(process_segment);
    if (segment_share_hold(process_segment, process_row, label.share_key))
        chunk->share_key = label.share_key;
    segment_unlock(process_segment);
    *handle = made;
    memory_journal(JOURNAL_ALLOC, label.device, 0, "import");
    return CUDA_SUCCESS;
}
