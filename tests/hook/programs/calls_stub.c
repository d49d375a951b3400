/* Opens a stub library (argument), finds the stub's function by dlsym, calls it twice. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *stub = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (stub == NULL) return 2;
    int (*function)(void) = (int (*)(void))dlsym(stub, "cuCtxSynchronize");
    printf("%d ", function());
    printf("%d\n", function());
    return 0;
}
