/* A program that never opens CUDA: says how many threads and descriptors it has at its end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int entries(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL) closedir(folder);
    return count;
}

int main(void) {
    int found = dlsym(RTLD_DEFAULT, "getppid") != NULL && getppid() > 0;
    printf("%d %d %d\n", found, entries("/proc/self/task") - 2, entries("/proc/self/fd") - 2);
    return 0;
}
