#include "surface/interpose.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "base/bell.h"
#include "base/namespaces.h"
#include "base/options.h"
#include "base/symbols.h"
#include "surface/unknown.h"

/* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
#define PER_THREAD_DEFAULT_STREAM 2u

typedef int (*dladdr1_function)(const void *address, Dl_info *info, void **extra, int flags);

_Atomic(void *) interpose_real[INTERPOSE_ENTRY_COUNT];

static enum symbols_library library_of(size_t entry) {
    return interpose_names[entry][0] == 'n' ? SYMBOLS_NVML : SYMBOLS_CUDA;
}

static int compare_names(const void *name, const void *other) {
    return strcmp(name, other);
}

static int find_name(const char (*names)[INTERPOSE_NAME_SIZE], size_t count, const char *name) {
    const char (*found)[INTERPOSE_NAME_SIZE] =
        bsearch(name, names, count, sizeof *names, compare_names);
    return found != NULL ? (int)(found - names) : -1;
}

static int find_entry(const char *name) {
    if (strncmp(name, "cu", 2) != 0 && strncmp(name, "nvml", 4) != 0) return -1;
    return find_name(interpose_names, INTERPOSE_ENTRY_COUNT, name);
}

/* A name like those of libcuda that stands in no header. */
static bool is_unknown(const char *name) {
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
           find_name(interpose_known, interpose_known_count, name) < 0;
}

/* From here on calls of the entry go through its wrapper, and those need an agent to wait for. */
static void remember(size_t entry, void *real) {
    bell_on_start(agent_start);
    atomic_store_explicit(&interpose_real[entry], real, memory_order_relaxed);
}

/* The real function of an entry, remembered; for use where the hook takes part. */
static void *real_of_entry(size_t entry) {
    void *real = atomic_load_explicit(&interpose_real[entry], memory_order_relaxed);
    if (real != NULL) return real;
    real = symbols_real_of(library_of(entry), interpose_names[entry], false);
    if (real != NULL) remember(entry, real);
    return real;
}

void *interpose_resolve(size_t entry) {
    void *real = symbols_real_of(library_of(entry), interpose_names[entry], true);
    if (real != NULL && options_take_part()) remember(entry, real);
    return real;
}

/* A library that was opened for itself sees its own dependencies too, by RTLD_DEFAULT. */
static void *find_in_scope_of(const void *caller, const char *name) {
    dladdr1_function libc_dladdr1 = (dladdr1_function)symbols_libc("dladdr1");
    Dl_info info;
    struct link_map *object = NULL;
    if (libc_dladdr1 == NULL ||
        libc_dladdr1(caller, &info, (void **)(void *)&object, RTLD_DL_LINKMAP) == 0)
        return NULL;
    return symbols_libc_dlsym(object, name);
}

/* What the caller would find, where we are the global scope's first. */
static void *find(void *handle, const char *name, const void *caller) {
    void *found = symbols_libc_dlsym(handle, name);
    return found == NULL && handle == RTLD_DEFAULT ? find_in_scope_of(caller, name) : found;
}

/* Our own export is what RTLD_DEFAULT and the main program's handle find first. What they would
 * find without us comes next after us; RTLD_NEXT means this, because the call is made from here. */
static void *find_behind_ours(size_t entry, void *handle, const void *caller) {
    const char *name = interpose_names[entry];
    void *own = handle == RTLD_DEFAULT ? find_in_scope_of(caller, name) : NULL;
    void *next = symbols_libc_dlsym(RTLD_NEXT, name);
    return next == NULL && own != interpose_wrappers[entry] ? own : next;
}

/* What to hand out for what the C library has found under that name.
 *
 * Another library may define functions of these names too, for instance a stub that looks up the
 * driver at its first call. Such a stub comes to us when it does; wrapped, it would be called by
 * the wrapper that it calls. */
static void *stand_in(int entry, const char *name, void *found) {
    if (found == NULL || !options_take_part()) return found;
    if (entry >= 0)
        return found == real_of_entry((size_t)entry) ? interpose_wrappers[entry] : found;
    return found == symbols_real(name) ? unknown_stub_of(found, name) : found;
}

struct interpose_answer interpose_dlsym(void *handle, const char *name, uint64_t unused,
                                        const void *caller) {
    (void)unused;
    void *libc_dlsym = symbols_libc_function(SYMBOLS_DLSYM);
    if (libc_dlsym == NULL) return (struct interpose_answer){NULL, 1};
    const bool is_any = name != NULL && handle != RTLD_NEXT;
    const int entry = is_any ? find_entry(name) : -1;
    if (entry < 0 && (!is_any || !is_unknown(name)))
        return (struct interpose_answer){libc_dlsym, 0};
    void *found = find(handle, name, caller);
    if (entry >= 0 && found == interpose_wrappers[entry])
        found = find_behind_ours((size_t)entry, handle, caller);
    void *answer = stand_in(entry, name, found);
    /* Lookups since then may have failed; dlerror is to tell of the caller's own. */
    if (answer != NULL) find(handle, name, caller);
    return (struct interpose_answer){answer, 1};
}

struct interpose_jump interpose_dlopen(const char *file, int flags) {
    (void)file;
    if (options_take_part()) flags &= ~RTLD_DEEPBIND;
    return (struct interpose_jump){symbols_next_function(SYMBOLS_DLOPEN), (uint64_t)flags};
}

struct interpose_jump interpose_dlmopen(long name_space, const char *file, int flags) {
    (void)file;
    if (name_space != LM_ID_BASE) namespaces_expect();
    if (options_take_part() && name_space == LM_ID_BASE) flags &= ~RTLD_DEEPBIND;
    return (struct interpose_jump){symbols_next_function(SYMBOLS_DLMOPEN), (uint64_t)flags};
}

/* Orders a name against the API name of a version record. */
static int compare_base(const char *name, const struct interpose_version *version) {
    const int order = strncmp(name, interpose_names[version->entry], version->base_length);
    return order != 0 ? order : (unsigned char)name[version->base_length];
}

static size_t first_version_of(const char *base) {
    size_t low = 0, high = interpose_version_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_base(base, &interpose_versions[middle]) <= 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool is_candidate(const struct interpose_version *version, const void *found, int asked) {
    if (version->cuda_version > asked) return false;
    /* A driver that finds its functions by name, as programs do, finds our exports. */
    return found == interpose_wrappers[version->entry] || found == real_of_entry(version->entry);
}

/* The record of the function that the driver answered with: of this name, not newer than asked
 * for, and the same address as the export of that record. The newest wins, and among equals the
 * stream variant that was asked for, since a driver may use one function for several. */
static const struct interpose_version *version_of(const char *symbol, const void *found,
                                                  int cuda_version, uint64_t flags,
                                                  bool *name_is_ours) {
    const enum gate_stream_variant variant =
        flags & PER_THREAD_DEFAULT_STREAM ? GATE_STREAM_PER_THREAD : GATE_STREAM_LEGACY;
    const struct interpose_version *best = NULL;
    size_t i = first_version_of(symbol);
    for (; i < interpose_version_count; i++) {
        const struct interpose_version *version = &interpose_versions[i];
        if (compare_base(symbol, version) != 0) break;
        *name_is_ours = true;
        if (!is_candidate(version, found, cuda_version)) continue;
        const bool newer = best == NULL || version->cuda_version > best->cuda_version;
        if (newer || version->variant == variant) best = version;
    }
    return best;
}

void interpose_proc_address(const char *symbol, void **function, int cuda_version, uint64_t flags) {
    if (symbol == NULL || function == NULL || *function == NULL) return;
    bool name_is_ours = false;
    const struct interpose_version *version =
        version_of(symbol, *function, cuda_version, flags, &name_is_ours);
    if (version != NULL)
        *function = interpose_wrappers[version->entry];
    else if (name_is_ours || is_unknown(symbol))
        *function = unknown_stub_of(*function, symbol);
}
