/* Modules, libraries and the functions in them. */
#ifndef GPUSHARE_SIM_MODULE_H
#define GPUSHARE_SIM_MODULE_H

#include <cuda.h>
#include <stdbool.h>

#include "modules/builtin.h"
#include "process/objects.h"

#define MODULE_FUNCTIONS_MAX 64
#define MODULE_PARAMETERS_MAX 16

struct context;

struct module_parameter {
    uint32_t offset;
    uint32_t bytes;
};

/* A function of a module. CUfunction and CUkernel handles both point to one. */
struct function {
    struct object object;
    struct module *module;
    char name[64];
    const struct builtin *builtin; /* NULL: it can be loaded, not launched */
    int parameter_count;
    struct module_parameter parameters[MODULE_PARAMETERS_MAX];
    int dynamic_shared_bytes_max;
};

/* A module of one context, or a library, which belongs to none. */
struct module {
    struct object object;
    bool library;
    struct context *context;
    uint64_t context_id;
    struct module *next; /* guarded by modules_lock */
    int function_count;
    struct function *functions[MODULE_FUNCTIONS_MAX];
};

#pragma GCC visibility push(hidden)

/* The function of a CUfunction or CUkernel; NULL when it is neither. */
struct function *function_check(const void *handle);

/* Unloads what a destroyed context loaded. */
void module_release_context(struct context *context);

/* Loads a PTX text; CUDA_ERROR_NO_BINARY_FOR_GPU and CUDA_ERROR_INVALID_IMAGE for others. */
CUresult module_open(const void *image, struct context *context, struct module **module);
void module_close(struct module *module);

/* The module's function of this name; NULL when there is none. */
struct function *module_find(const struct module *module, const char *name);

struct module *module_check(const void *handle, bool library);

/* Reads a file whole, with a zero byte behind it; NULL when that fails. */
char *module_read_file(const char *path);

#pragma GCC visibility pop
#endif
