/* Closes every descriptor above the standard ones and puts its own file in their places. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

#define NUMBERS 600

static int was_open[NUMBERS];

static void close_all(const char *path) {
    for (int fd = 3; fd < NUMBERS; fd++)
        was_open[fd] = close(fd) == 0;
    int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (file < 0 || write(file, "mine", 4) != 4) exit(5);
    for (int fd = 3; fd < NUMBERS; fd++) {
        if (was_open[fd] && fd != file && dup2(file, fd) != fd) exit(6);
    }
    printf("closed\n");
}

/* The program's own descriptors are still the program's. */
static void check_files(const char *path) {
    char found[PATH_MAX], expected[PATH_MAX];
    if (realpath(path, expected) == NULL) exit(7);
    for (int fd = 3; fd < NUMBERS; fd++) {
        if (!was_open[fd]) continue;
        char link[64];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(link, found, sizeof(found) - 1);
        found[bytes > 0 ? bytes : 0] = 0;
        if (strcmp(found, expected) != 0) exit(8);
    }
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    struct gpu gpu = gpu_open(0);
    check(gpu_spin(&gpu, NULL, 1000), "launch");
    printf("launched\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "close\n") == 0) close_all(arguments[1]);
        if (strcmp(line, "launch\n") == 0) {
            check(gpu_spin(&gpu, NULL, 1000), "launch");
            printf("launched\n");
        }
        fflush(stdout);
    }
    check_files(arguments[1]);
    return 0;
}
