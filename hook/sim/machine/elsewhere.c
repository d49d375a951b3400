#define _GNU_SOURCE
#include "machine/elsewhere.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Programs close descriptors that they do not know, the low ones above all. */
#define DESCRIPTOR_FROM 900

/* Never closed: the lock would go with any descriptor of the file that a process closes. */
static int file = -1;

/* Call with the segment's lock held, which guards `file`. */
static void open_file(const char *directory) {
    char path[PATH_MAX];
    struct stat found;
    if (file >= 0 || stat(directory, &found) != 0) return;
    snprintf(path, sizeof path, "%s/rows", directory);
    const int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, found.st_mode & 0666);
    if (opened < 0) return;
    (void)fchmod(opened, found.st_mode & 0666);
    file = fcntl(opened, F_DUPFD_CLOEXEC, DESCRIPTOR_FROM);
    if (file < 0)
        file = opened; /* few are allowed here */
    else
        close(opened); /* nothing is locked yet */
}

static struct flock byte_of(int row) {
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1};
}

uint32_t elsewhere_own_namespace(void) {
    struct stat found;
    return stat("/proc/self/ns/pid", &found) == 0 ? (uint32_t)found.st_ino : 0;
}

void elsewhere_hold(const char *directory, int row) {
    open_file(directory);
    struct flock lock = byte_of(row);
    if (file >= 0) (void)fcntl(file, F_SETLK, &lock);
}

bool elsewhere_is_held(const char *directory, int row, uint32_t *pid) {
    open_file(directory);
    struct flock lock = byte_of(row);
    *pid = 0;
    if (file < 0 || fcntl(file, F_GETLK, &lock) != 0) return true; /* nobody is declared dead */
    if (lock.l_type == F_UNLCK) return false;
    if (lock.l_pid > 0) *pid = (uint32_t)lock.l_pid;
    return true;
}
