#define _GNU_SOURCE
#include "modules/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modules/ptx.h"
#include "process/context.h"

static struct object_pool module_pool = OBJECT_POOL(struct module, 65536);
static struct object_pool function_pool = OBJECT_POOL(struct function, 1 << 18);
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;
static struct module *modules; /* of contexts; guarded by modules_lock */

struct function *function_check(const void *handle) {
    return object_check(&function_pool, handle);
}

struct module *module_check(const void *handle, bool library) {
    struct module *module = object_check(&module_pool, handle);
    return module != NULL && module->library == library ? module : NULL;
}

struct function *module_find(const struct module *module, const char *name) {
    for (int i = 0; i < module->function_count; i++) {
        if (strcmp(module->functions[i]->name, name) == 0) return module->functions[i];
    }
    return NULL;
}

static bool add_function(struct module *module, const struct ptx_entry *entry) {
    struct function *function = object_take(&function_pool);
    if (function == NULL) return false;
    uint32_t offset = 0;
    function->module = module;
    snprintf(function->name, sizeof function->name, "%s", entry->name);
    function->builtin = builtin_find(entry->name);
    function->parameter_count = entry->parameter_count;
    for (int i = 0; i < entry->parameter_count; i++) {
        uint32_t alignment = entry->parameter_alignment[i];
        offset = (offset + alignment - 1) / alignment * alignment;
        function->parameters[i] = (struct module_parameter){offset, entry->parameter_bytes[i]};
        offset += entry->parameter_bytes[i];
    }
    module->functions[module->function_count++] = function;
    return true;
}

/* ELF and fat binaries are images, only not for this device. */
static CUresult check_image(const void *image) {
    static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'};
    static const unsigned char fat[4] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char fat_wrapper[4] = {0xb1, 0x43, 0x62, 0x46};
    if (image == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (ptx_is_text(image)) return ptx_is_sound(image) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    if (memcmp(image, elf, 4) == 0 || memcmp(image, fat, 4) == 0 ||
        memcmp(image, fat_wrapper, 4) == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult module_open(const void *image, struct context *context, struct module **result) {
    CUresult checked = check_image(image);
    if (checked != CUDA_SUCCESS) return checked;
    struct module *module = object_take(&module_pool);
    if (module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    const char *at = image;
    struct ptx_entry entry;
    while (module->function_count < MODULE_FUNCTIONS_MAX && ptx_next_entry(&at, &entry)) {
        if (!add_function(module, &entry)) {
            module_close(module);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    module->library = context == NULL;
    module->context = context;
    if (context != NULL) {
        module->context_id = context->id;
        pthread_mutex_lock(&modules_lock);
        module->next = modules;
        modules = module;
        pthread_mutex_unlock(&modules_lock);
    }
    *result = module;
    return CUDA_SUCCESS;
}

void module_close(struct module *module) {
    pthread_mutex_lock(&modules_lock);
    for (struct module **link = &modules; *link != NULL; link = &(*link)->next) {
        if (*link == module) {
            *link = module->next;
            break;
        }
    }
    pthread_mutex_unlock(&modules_lock);
    for (int i = 0; i < module->function_count; i++)
        object_drop(&function_pool, module->functions[i]);
    object_drop(&module_pool, module);
}

void module_release_context(struct context *context) {
    for (;;) {
        pthread_mutex_lock(&modules_lock);
        struct module *module = modules;
        while (module != NULL && (module->context != context || module->context_id != context->id))
            module = module->next;
        pthread_mutex_unlock(&modules_lock);
        if (module == NULL) return;
        module_close(module);
    }
}

char *module_read_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return NULL;
    char *text = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        rewind(file);
        text = size < 0 ? NULL : calloc(1, (size_t)size + 16);
        if (text != NULL && fread(text, 1, (size_t)size, file) != (size_t)size) {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}
