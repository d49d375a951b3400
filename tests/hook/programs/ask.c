/* Reads requests, one a line, and does each of them: finds a function and calls it with zeros.
 *   dlsym NAME            dlsym on the handle of libcuda.so.1
 *   proc NAME VERSION FLAGS   cuGetProcAddress_v2; proc1: the older cuGetProcAddress
 * Prints for each: the status of the search, what the call returned, which object has the function.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*entry_function)(long, long, long, long, long, long, long, long, long, long, long,
                              long);
typedef int (*proc_address)(const char *, void **, int, unsigned long long, int *);
typedef int (*proc_address_v1)(const char *, void **, int, unsigned long long);

static void answer(int status, void *function, int calls) {
    Dl_info info = {0};
    const char *object = "-";
    if (function != NULL && dladdr(function, &info)) object = strrchr(info.dli_fname, '/') + 1;
    int result = 0;
    if (function != NULL && calls)
        result = ((entry_function)function)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    printf("%d %d %s\n", status, result, object);
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    proc_address find = (proc_address)dlsym(cuda, "cuGetProcAddress_v2");
    proc_address_v1 find_v1 = (proc_address_v1)dlsym(cuda, "cuGetProcAddress");
    char way[16], name[128];
    int version, calls;
    unsigned long long flags;
    while (scanf("%15s %127s %d %llu %d", way, name, &version, &flags, &calls) == 5) {
        void *function = NULL;
        int status = -1, result = 0;
        if (strcmp(way, "dlsym") == 0) function = dlsym(cuda, name);
        if (strcmp(way, "proc") == 0) result = find(name, &function, version, flags, &status);
        if (strcmp(way, "proc_no_status") == 0)
            result = find(name, &function, version, flags, NULL);
        if (strcmp(way, "proc1") == 0) result = find_v1(name, &function, version, flags);
        answer(result != 0 ? result : status, function, calls);
    }
    return 0;
}
