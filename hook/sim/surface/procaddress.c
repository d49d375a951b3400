/* cuGetProcAddress: by base name, CUDA version and stream variant. */
#include <stdint.h>
#include <string.h>

#include "process/process.h"
#include "sim_api.h"
#include "surface/entry.h"

/* The first row of this base name (the table is sorted by strcmp); entry_count when absent. */
static unsigned first_row(const char *base) {
    unsigned low = 0;
    unsigned high = entry_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (strcmp(entry_table[middle].base, base) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < entry_count && strcmp(entry_table[low].base, base) == 0 ? low : entry_count;
}

/* The newest ABI version that is not newer than asked for. A function without a per-thread variant
 * is the same in both. */
static const struct entry_row *choose(unsigned first, int cuda_version, bool per_thread,
                                      bool *too_new) {
    const struct entry_row *plain = NULL;
    const struct entry_row *variant = NULL;
    const char *base = entry_table[first].base;
    for (unsigned i = first; i < entry_count && strcmp(entry_table[i].base, base) == 0; i++) {
        const struct entry_row *row = &entry_table[i];
        if (row->cuda_version > cuda_version) {
            *too_new = true;
            continue;
        }
        if (row->per_thread) {
            if (variant == NULL || row->cuda_version >= variant->cuda_version) variant = row;
        } else if (plain == NULL || row->cuda_version >= plain->cuda_version) {
            plain = row;
        }
    }
    return per_thread && variant != NULL ? variant : plain;
}

CUresult sim_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *symbolStatus) {
    const cuuint64_t known_flags =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == NULL || pfn == NULL || (flags & ~known_flags) != 0 || flags == known_flags)
        return CUDA_ERROR_INVALID_VALUE;
    bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ||
                      (flags == 0 && process_default_stream_is_per_thread);
    bool too_new = false;
    unsigned first = first_row(symbol);
    const struct entry_row *row = NULL;
    if (first < entry_count) row = choose(first, cudaVersion, per_thread, &too_new);
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    if (row == NULL) {
        status = too_new ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                         : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    *pfn = row == NULL ? NULL : row->address;
    if (symbolStatus != NULL) *symbolStatus = status;
    return CUDA_SUCCESS; /* without a status the NULL pointer alone tells */
}

CUresult sim_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    CUresult result = sim_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
    return result == CUDA_SUCCESS && *pfn == NULL ? CUDA_ERROR_NOT_FOUND : result;
}

/* The private tables of the real driver are not simulated. */
CUresult sim_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
    if (ppExportTable == NULL || pExportTableId == NULL) return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
