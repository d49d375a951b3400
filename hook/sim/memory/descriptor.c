#define _GNU_SOURCE
#include "memory/descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "process/process.h"

struct watch {
    struct watch *next;
    int fd;
    void (*gone)(uint64_t argument);
    uint64_t argument;
};

static pthread_mutex_t looking_lock = PTHREAD_MUTEX_INITIALIZER; /* held until all are gone */
static pthread_mutex_t watches_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct watch *watches;
static _Atomic unsigned watch_count;
static void (*start_looking)(void); /* set by cuInit */

int descriptor_again(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int made = open(path, O_RDWR | O_CLOEXEC);
    return made >= 0 ? made : fcntl(fd, F_DUPFD_CLOEXEC, 0); /* without /proc nobody is missed */
}

/* A lock of an open file ends when its last descriptor is closed, wherever that is. */
static struct flock lock_of(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
}

int descriptor_of(int fd) {
    struct flock lock = lock_of(F_RDLCK);
    const int made = descriptor_again(fd);
    if (made < 0 || fcntl(made, F_OFD_SETLK, &lock) == 0) return made;
    close(made);
    return -1;
}

bool descriptor_is_open(int fd) {
    struct flock lock = lock_of(F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool descriptor_when_closed(int fd, void (*gone)(uint64_t argument), uint64_t argument) {
    struct watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) return false;
    *watch = (struct watch){.fd = fd, .gone = gone, .argument = argument};
    pthread_mutex_lock(&watches_lock);
    watch->next = watches;
    watches = watch;
    pthread_mutex_unlock(&watches_lock);
    atomic_fetch_add(&watch_count, 1);
    start_looking();
    process_wake(); /* the executor looks from now on */
    return true;
}

void descriptor_set_start(void (*start)(void)) {
    start_looking = start;
}

bool descriptor_any_watched(void) {
    return atomic_load(&watch_count) > 0;
}

/* Those that are over, out of the list. */
static struct watch *take_over(void) {
    struct watch *over = NULL;
    pthread_mutex_lock(&watches_lock);
    struct watch **link = &watches;
    while (*link != NULL) {
        struct watch *watch = *link;
        if (descriptor_is_open(watch->fd)) {
            link = &watch->next;
            continue;
        }
        *link = watch->next;
        watch->next = over;
        over = watch;
    }
    pthread_mutex_unlock(&watches_lock);
    return over;
}

bool descriptor_look(void) {
    pthread_mutex_lock(&looking_lock);
    struct watch *over = take_over();
    const bool any = over != NULL;
    while (over != NULL) {
        struct watch *watch = over;
        over = watch->next;
        watch->gone(watch->argument);
        close(watch->fd);
        free(watch);
        atomic_fetch_sub(&watch_count, 1);
    }
    pthread_mutex_unlock(&looking_lock);
    return any;
}
