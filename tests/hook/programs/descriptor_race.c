/* A program that closes all its descriptors, and opens a file of its own, between two steps of the
 * hook's adopting one, and before the first. Linked with -Wl,--wrap=fcntl. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"

int __real_fcntl(int fd, int command, int argument);
int __wrap_fcntl(int fd, int command, ...);

static int taken_over = -1;

int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    const int argument = va_arg(arguments, int);
    va_end(arguments);
    if (command == F_DUPFD_CLOEXEC && taken_over < 0) {
        close(fd);
        taken_over = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        if (taken_over != fd) fprintf(stderr, "the number was not given out again\n");
    }
    return __real_fcntl(fd, command, argument);
}

static void adopt(int fd) {
    struct descriptor descriptor;
    char byte = 1;
    const bool adopted = descriptor_adopt(&descriptor, fd, S_IFSOCK);
    const bool is_open = read(taken_over, &byte, 1) == 1 && byte == 0;
    const bool left_behind = fcntl(DESCRIPTOR_MIN, F_GETFD, 0) >= 0;
    printf("%d %d %d\n", adopted, is_open, left_behind);
}

int main(void) {
    adopt(socket(AF_UNIX, SOCK_STREAM, 0));
    adopt(taken_over); /* the hook's socket had this number until just now */
    return 0;
}
