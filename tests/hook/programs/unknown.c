/* Asks for functions of the driver that no header has, and calls one where told to.
 *   unknown ask|call|many */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*brand_new)(int, int, int, int, int, int, double, double, double, double, double,
                         double, double, double, int, double, const char *, ...);
typedef int (*proc_address)(const char *, void **, int, unsigned long long, int *);

static int call(brand_new function) {
    return function(1, 2, 3, 4, 5, 6, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 7, 9.5, "%d %f", 8,
                    10.5);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    brand_new by_name = (brand_new)dlsym(cuda, "cuBrandNew");
    void *by_address = NULL;
    int status = -1;
    ((proc_address)dlsym(cuda, "cuGetProcAddress_v2"))("cuBrandNew", &by_address, 13060, 0,
                                                       &status);
    printf("%d %d\n", by_name != NULL, by_name == (brand_new)by_address);
    for (int i = 0; i < 300 && strcmp(argv[1], "many") == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "cuBrandNew%d", i);
        int (*function)(void) = (int (*)(void))dlsym(cuda, name);
        if (function == NULL || function() != i) printf("%s is wrong\n", name);
    }
    for (int i = 0; i < 2 && strcmp(argv[1], "call") == 0; i++)
        printf("%d\n", call(i == 0 ? by_name : (brand_new)by_address));
    return 0;
}
