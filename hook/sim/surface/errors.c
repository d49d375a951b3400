/* Names and sentences of the driver's error codes. */
#include <stddef.h>

#include "sim_api.h"

struct error_row {
    int value;
    const char *name;
    const char *sentence;
};

static const struct error_row errors[] = {
#include "error_names.inc"
};

static const struct error_row *find_error(CUresult error) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].value == (int)error) return &errors[i];
    }
    return NULL;
}

CUresult sim_cuGetErrorName(CUresult error, const char **pStr) {
    const struct error_row *row = find_error(error);
    if (pStr == NULL) return CUDA_ERROR_INVALID_VALUE;
    *pStr = row == NULL ? NULL : row->name;
    return row == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuGetErrorString(CUresult error, const char **pStr) {
    const struct error_row *row = find_error(error);
    if (pStr == NULL) return CUDA_ERROR_INVALID_VALUE;
    *pStr = row == NULL ? NULL : row->sentence;
    return row == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
