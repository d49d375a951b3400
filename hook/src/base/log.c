#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/uncancelled.h"

static const char *const LEVEL_NAMES[] = {"off", "error", "info", "debug"};

/* What was stderr when the process began: zeros, which no file has, where it was closed. Written
 * once, by the loader's thread. */
static struct stat first_stderr;

__attribute__((constructor)) static void remember_stderr(void) {
    fstat(STDERR_FILENO, &first_stderr);
}

static bool is_same(const struct stat *file, const struct stat *other) {
    return file->st_dev == other->st_dev && file->st_ino == other->st_ino;
}

/* A program may close its stderr and use the number for a file or a connection of its own, which
 * must not get our lines. A pipe (a kernel's, to its notebook) or a terminal may well be new. */
static bool stderr_takes_messages(void) {
    struct stat status;
    if (fstat(STDERR_FILENO, &status) != 0) return false;
    return S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode) || is_same(&status, &first_stderr);
}

/* A line goes out in one write, so that lines of several processes do not mix. */
static void write_line(int fd, const char *line, size_t bytes) {
    while (write(fd, line, bytes) < 0 && errno == EINTR)
        continue;
}

/* A full pipe is passed over: whoever reads it may wait for the very thread that would wait here,
 * as the reader of a kernel's output does for the interpreter's lock. */
static void write_to_stderr(const char *line, size_t bytes) {
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (!stderr_takes_messages() || poll(&room, 1, 0) != 1 || !(room.revents & POLLOUT)) return;
    write_line(STDERR_FILENO, line, bytes);
}

static bool is_file(int fd, const char *path) {
    struct stat named, opened;
    return stat(path, &named) == 0 && fstat(fd, &opened) == 0 && is_same(&opened, &named);
}

/* The number is the lowest free one. A program that has closed it, and not seen it given out again,
 * may put a file of its own there at any moment. */
static void write_to_file(const char *path, const char *line, size_t bytes) {
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (is_file(fd, path)) write_line(fd, line, bytes);
    if (is_file(fd, path)) close(fd);
}

void log_line(enum log_level level, const char *format, ...) {
    const struct options *options = options_get();
    if ((uint32_t)level > options->log_level) return;
    UNCANCELLED();
    int saved_errno = errno;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);

    char line[1152];
    int bytes;
    if (level == LOG_ERROR) {
        bytes = snprintf(line, sizeof(line), "gpushare: %s\n", text);
        if (bytes > 0) write_to_stderr(line, (size_t)bytes);
    }
    if (level != LOG_ERROR || options->log_file[0]) {
        uint64_t us = clock_now_ns() / 1000;
        bytes = snprintf(line, sizeof(line), "gpushare: %lu.%03u ms pid %d %s: %s\n", (us / 1000),
                         (unsigned)(us % 1000), (int)getpid(), LEVEL_NAMES[level], text);
        if (bytes > 0 && options->log_file[0])
            write_to_file(options->log_file, line, (size_t)bytes);
        else if (bytes > 0)
            write_to_stderr(line, (size_t)bytes);
    }
    errno = saved_errno;
}
