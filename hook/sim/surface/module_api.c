/* cuModule*, cuLibrary*, cuKernel* and cuFunc*. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "modules/module.h"
#include "process/context.h"
#include "sim_api.h"

/* A CUmodule is a context's own, or a library's. */
static struct module *any_module(CUmodule handle) {
    struct module *module = module_check(handle, false);
    return module != NULL ? module : module_check(handle, true);
}

CUresult sim_cuModuleLoadData(CUmodule *module, const void *image) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
    return module_open(image, context, (struct module **)module);
}

CUresult sim_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                CUjit_option *options, void **optionValues) {
    if (numOptions > 0 && (options == NULL || optionValues == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_cuModuleLoadData(module, image);
}

CUresult sim_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return sim_cuModuleLoadData(module, fatCubin);
}

CUresult sim_cuModuleLoad(CUmodule *module, const char *fname) {
    if (fname == NULL) return CUDA_ERROR_INVALID_VALUE;
    char *text = module_read_file(fname);
    if (text == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = sim_cuModuleLoadData(module, text);
    free(text);
    return result;
}

CUresult sim_cuModuleUnload(CUmodule hmod) {
    struct module *module = module_check(hmod, false);
    if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
    module_close(module);
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    struct module *module = any_module(hmod);
    if (hfunc == NULL || name == NULL || name[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = module->context == NULL ? CUDA_SUCCESS : context_state(module->context);
    if (result != CUDA_SUCCESS) return result;
    struct function *function = module_find(module, name);
    if (function == NULL) return CUDA_ERROR_NOT_FOUND;
    *hfunc = (CUfunction)function;
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
    struct module *module = any_module(mod);
    if (count == NULL || module == NULL) return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)module->function_count;
    return CUDA_SUCCESS;
}

CUresult sim_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
                                        CUmodule mod) {
    struct module *module = any_module(mod);
    if (functions == NULL || module == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numFunctions && i < (unsigned)module->function_count; i++)
        functions[i] = (CUfunction)module->functions[i];
    return CUDA_SUCCESS;
}

/* Global variables are not simulated. */
CUresult sim_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
                                  const char *name) {
    (void)dptr;
    (void)bytes;
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    return any_module(hmod) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    (void)jitOptions;
    (void)jitOptionsValues;
    (void)numJitOptions;
    (void)libraryOptions;
    (void)libraryOptionValues;
    (void)numLibraryOptions;
    if (library == NULL) return CUDA_ERROR_INVALID_VALUE;
    return module_open(code, NULL, (struct module **)library);
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
                                   CUjit_option *jitOptions, void **jitOptionsValues,
                                   unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                   void **libraryOptionValues, unsigned int numLibraryOptions) {
    if (fileName == NULL) return CUDA_ERROR_INVALID_VALUE;
    char *text = module_read_file(fileName);
    if (text == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result =
        sim_cuLibraryLoadData(library, text, jitOptions, jitOptionsValues, numJitOptions,
                              libraryOptions, libraryOptionValues, numLibraryOptions);
    free(text);
    return result;
}

CUresult sim_cuLibraryUnload(CUlibrary library) {
    struct module *module = module_check(library, true);
    if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
    module_close(module);
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
    struct module *module = module_check(library, true);
    if (pKernel == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
    struct function *function = module_find(module, name);
    if (function == NULL) return CUDA_ERROR_NOT_FOUND;
    *pKernel = (CUkernel)function;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
    struct module *module = module_check(lib, true);
    if (count == NULL || module == NULL) return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned)module->function_count;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib) {
    struct module *module = module_check(lib, true);
    if (kernels == NULL || module == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numKernels && i < (unsigned)module->function_count; i++)
        kernels[i] = (CUkernel)module->functions[i];
    return CUDA_SUCCESS;
}

/* A library's module is the library itself. */
CUresult sim_cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (pMod == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (module_check(library, true) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *pMod = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                const char *name) {
    (void)dptr;
    (void)bytes;
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    return module_check(library, true) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                 const char *name) {
    return sim_cuLibraryGetGlobal(dptr, bytes, library, name);
}

CUresult sim_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (pFunc == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function_check(kernel) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *pFunc = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
    struct function *function = function_check(kernel);
    if (pLib == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL || !function->module->library) return CUDA_ERROR_INVALID_HANDLE;
    *pLib = (CUlibrary)function->module;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    struct function *function = function_check(hfunc);
    if (hmod == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *hmod = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

static CUresult get_name(const char **name, const void *handle) {
    struct function *function = function_check(handle);
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetName(const char **name, CUfunction hfunc) {
    return get_name(name, hfunc);
}

CUresult sim_cuKernelGetName(const char **name, CUkernel hfunc) {
    return get_name(name, hfunc);
}

static CUresult get_parameter(const void *handle, size_t index, size_t *offset, size_t *size) {
    struct function *function = function_check(handle);
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (offset == NULL || index >= (size_t)function->parameter_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->parameters[index].offset;
    if (size != NULL) *size = function->parameters[index].bytes;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                                size_t *paramSize) {
    return get_parameter(func, paramIndex, paramOffset, paramSize);
}

CUresult sim_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                                  size_t *paramSize) {
    return get_parameter(kernel, paramIndex, paramOffset, paramSize);
}

static CUresult get_parameter_count(const void *handle, size_t *count) {
    struct function *function = function_check(handle);
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    *count = (size_t)function->parameter_count;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetParamCount(CUfunction func, size_t *paramCount) {
    return get_parameter_count(func, paramCount);
}

CUresult sim_cuKernelGetParamCount(CUkernel kernel, size_t *paramCount) {
    return get_parameter_count(kernel, paramCount);
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const void *handle) {
    struct function *function = function_check(handle);
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = 1024;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            *value = 16;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            *value = 90;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = function->dynamic_shared_bytes_max != 0 ? function->dynamic_shared_bytes_max
                                                             : 49152;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            *value = -1;
            return CUDA_SUCCESS;
        default:
            if ((unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
            *value = 0;
            return CUDA_SUCCESS;
    }
}

CUresult sim_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    return get_attribute(pi, attrib, hfunc);
}

CUresult sim_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
                                  CUdevice dev) {
    return device_check(dev) ? get_attribute(pi, attrib, kernel) : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_attribute(CUfunction_attribute attribute, int value, const void *handle) {
    struct function *function = function_check(handle);
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || value > 232448) return CUDA_ERROR_INVALID_VALUE;
        function->dynamic_shared_bytes_max = value;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    return set_attribute(attrib, value, hfunc);
}

CUresult sim_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                  CUdevice dev) {
    return device_check(dev) ? set_attribute(attrib, val, kernel) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    (void)config;
    return function_check(hfunc) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult sim_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
    (void)config;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    return function_check(kernel) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult sim_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function_check(function) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncLoad(CUfunction function) {
    return function_check(function) == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
