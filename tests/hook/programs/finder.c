/* Looks one name up in ways that programs have, and prints which object the answer is in.
 *   finder default|next|main|local|global|oldest|LIBRARY NAME
 * `local` and `global` open libcuda.so.1 that way and then look in RTLD_DEFAULT; `oldest` uses the
 * architecture's oldest version of dlsym on libcuda's handle, as old programs do. A library is
 * opened for itself, and looks in its own RTLD_DEFAULT (deep.c) or is looked in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
__asm__(".symver dlsym_oldest, dlsym@GLIBC_2.2.5");
#else
__asm__(".symver dlsym_oldest, dlsym@GLIBC_2.17");
#endif
void *dlsym_oldest(void *handle, const char *name);

static void *find_by(const char *library, const char *name) {
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *(*finds)(const char *) = (void *(*)(const char *))dlsym(opened, "by_default");
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    dlerror();
    return finds != NULL ? finds(name) : dlsym(opened, name);
}

static void *find(const char *way, const char *name) {
    if (strchr(way, '/') != NULL) return find_by(way, name);
    if (strcmp(way, "next") == 0) return dlsym(RTLD_NEXT, name);
    if (strcmp(way, "main") == 0) return dlsym(dlopen(NULL, RTLD_NOW), name);
    if (strcmp(way, "oldest") == 0) return dlsym_oldest(dlopen("libcuda.so.1", RTLD_NOW), name);
    if (strcmp(way, "local") == 0) dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (strcmp(way, "global") == 0) dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return dlsym(RTLD_DEFAULT, name);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void *function = find(argv[1], argv[2]);
    Dl_info info = {0};
    if (function == NULL)
        printf("none %s\n", dlerror() != NULL ? "with-error" : "without-error");
    else if (dlerror() != NULL)
        printf("found with-error\n");
    else if (dladdr(function, &info))
        printf("%s\n", strrchr(info.dli_fname, '/') + 1);
    return 0;
}
