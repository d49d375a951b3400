/* Pools for several processes: a pool becomes a POSIX file descriptor, and a pool again elsewhere,
 * from which single allocations are imported. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/memory.h"
#include "memory/pooled.h"
#include "process/process.h"
#include "sim_api.h"

#define LABEL_MAGIC 0x6c6f6f706d6973ull

/* At the beginning of a pool's file. */
struct pool_label {
    uint64_t magic;
    uint32_t device; /* index in the segment */
};

/* Where one allocation lies; this is what other processes are given, in whatever way. */
struct pointer_label {
    uint64_t magic;
    uint64_t file; /* its number, which tells pools apart */
    uint64_t offset;
    uint64_t bytes;
};

_Static_assert(sizeof(struct pointer_label) <= sizeof(CUmemPoolPtrExportData), "fits");

static uint64_t number_of(int fd) {
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? status.st_ino : 0;
}

/* The label went through other hands: it may say anything. */
static bool is_within(const struct pointer_label *label) {
    return label->bytes > 0 && label->bytes <= POOL_FILE_BYTES &&
           label->offset <= POOL_FILE_BYTES - label->bytes;
}

CUresult sim_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags) {
    struct pool *pool = object_check(&pool_pool, handle);
    if (handle_out == NULL || pool == NULL || flags != 0 || pool->imported || pool->fd < 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    const struct pool_label label = {.magic = LABEL_MAGIC, .device = pool->device};
    if (pwrite(pool->fd, &label, sizeof label, 0) != (ssize_t)sizeof label)
        return CUDA_ERROR_OPERATING_SYSTEM;
    int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    atomic_store(&pool->exported, true);
    *(int *)handle_out = fd;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                CUmemAllocationHandleType handleType,
                                                unsigned long long flags) {
    struct pool_label label;
    const int fd = (int)(intptr_t)handle;
    if (pool_out == NULL || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        number_of(fd) == 0 || pread(fd, &label, sizeof label, 0) != (ssize_t)sizeof label ||
        label.magic != LABEL_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    const int ordinal = process_ordinal_of(label.device);
    if (ordinal < 0) return CUDA_ERROR_NOT_SUPPORTED;
    const struct pool_kind kind = {
        .ordinal = ordinal, .imported = true, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    struct pool *pool = kind.fd >= 0 ? pool_open(&kind) : NULL;
    if (pool == NULL) {
        if (kind.fd >= 0) close(kind.fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool_out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
    struct range found;
    if (shareData_out == NULL || !memory_find(ptr, &found) || found.start != ptr ||
        found.file_offset == 0 || found.pool->imported || !atomic_load(&found.pool->exported))
        return CUDA_ERROR_INVALID_VALUE;
    const struct pointer_label label = {.magic = LABEL_MAGIC,
                                        .file = number_of(found.pool->fd),
                                        .offset = found.file_offset,
                                        .bytes = found.bytes};
    memset(shareData_out, 0, sizeof *shareData_out);
    memcpy(shareData_out, &label, sizeof label);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool handle,
                                    CUmemPoolPtrExportData *shareData) {
    struct pool *pool = object_check(&pool_pool, handle);
    struct pointer_label label;
    if (ptr_out == NULL || shareData == NULL || pool == NULL || !pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&label, shareData, sizeof label);
    if (label.magic != LABEL_MAGIC || label.file != number_of(pool->fd) || !is_within(&label))
        return CUDA_ERROR_INVALID_VALUE;
    return pooled_import(pool, label.offset, label.bytes, ptr_out) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_OUT_OF_MEMORY;
}
