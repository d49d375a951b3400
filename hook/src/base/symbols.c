#include "base/symbols.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/elf_lookup.h"

typedef void *(*dlsym_function)(void *handle, const char *name);
typedef void *(*dlopen_function)(const char *file, int flags);

/* Each of these is set once, to a value that does not depend on who sets it: no lock. */
static _Atomic(void *) libc_functions[SYMBOLS_FUNCTIONS];
static _Atomic(void *) next_functions[SYMBOLS_FUNCTIONS];
static _Atomic(void *) library_handles[2];

static const char *const library_file_names[] = {
    [SYMBOLS_CUDA] = "libcuda.so.1",
    [SYMBOLS_NVML] = "libnvidia-ml.so.1",
};

static const char *const function_names[] = {
    [SYMBOLS_DLSYM] = "dlsym",
    [SYMBOLS_DLOPEN] = "dlopen",
    [SYMBOLS_DLMOPEN] = "dlmopen",
};

/* Until glibc 2.34 dlsym and the thread functions were in libraries of their own. */
void *symbols_libc(const char *name) {
    static const char *const object_file_names[] = {"libc.so.6", "libdl.so.2", "libpthread.so.0"};
    for (size_t i = 0; i < sizeof object_file_names / sizeof *object_file_names; i++) {
        void *address = elf_lookup(object_file_names[i], name);
        if (address != NULL) return address;
    }
    return NULL;
}

void *symbols_libc_function(enum symbols_function function) {
    void *address = atomic_load_explicit(&libc_functions[function], memory_order_relaxed);
    if (address == NULL) {
        address = symbols_libc(function_names[function]);
        atomic_store_explicit(&libc_functions[function], address, memory_order_relaxed);
    }
    return address;
}

void *symbols_next_function(enum symbols_function function) {
    void *address = atomic_load_explicit(&next_functions[function], memory_order_relaxed);
    if (address == NULL) {
        address = symbols_libc_dlsym(RTLD_NEXT, function_names[function]);
        if (address == NULL) address = symbols_libc_function(function);
        atomic_store_explicit(&next_functions[function], address, memory_order_relaxed);
    }
    return address;
}

void *symbols_libc_dlsym(void *handle, const char *name) {
    dlsym_function function = (dlsym_function)symbols_libc_function(SYMBOLS_DLSYM);
    return function != NULL ? function(handle, name) : NULL;
}

static void *library_handle(enum symbols_library library, bool load) {
    void *handle = atomic_load_explicit(&library_handles[library], memory_order_acquire);
    if (handle != NULL) return handle;
    dlopen_function open = (dlopen_function)symbols_libc_function(SYMBOLS_DLOPEN);
    if (open == NULL) return NULL;
    handle = open(library_file_names[library], RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
    if (handle != NULL)
        atomic_store_explicit(&library_handles[library], handle, memory_order_release);
    return handle;
}

void *symbols_real_of(enum symbols_library library, const char *exported_name, bool load) {
    void *handle = library_handle(library, load);
    return handle != NULL ? symbols_libc_dlsym(handle, exported_name) : NULL;
}

void *symbols_real(const char *exported_name) {
    return symbols_real_of(SYMBOLS_CUDA, exported_name, false);
}
