/* Opens deep.c, and prints in which object cuLaunchKernel is that it finds.
 *   opens_deep dlopen|dlmopen|neighbours LIBRARY */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void print_object(void *function) {
    Dl_info info = {0};
    const int known = function != NULL && dladdr(function, &info);
    printf("%s\n", known ? strrchr(info.dli_fname, '/') + 1 : "none");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const int flags = RTLD_NOW | RTLD_DEEPBIND;
    void *library = strcmp(argv[1], "dlmopen") == 0 ? dlmopen(LM_ID_BASE, argv[2], flags)
                                                    : dlopen(argv[2], flags);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    if (strcmp(argv[1], "neighbours") == 0) {
        int (*finds)(const char *) = (int (*)(const char *))dlsym(library, "finds");
        printf("%d %d\n", finds("libbeside.so"), finds("$ORIGIN/neighbour.so"));
        return 0;
    }
    print_object(((void *(*)(void))dlsym(library, "by_name"))());
    return 0;
}
