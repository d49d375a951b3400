/* jumps_out, to which SIGINT comes at the worst moment: when the thread that waits is about to let
 * go of a lock, the one whose number is in AT_LOCK. Where AT_FILE names a file, locks count from
 * when that is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_foreign(void) {
    Dl_info program, handler;
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    return dladdr((void *)is_foreign, &program) != 0 &&
           dladdr((void *)action.sa_sigaction, &handler) != 0 &&
           program.dli_fbase != handler.dli_fbase;
}

static bool counts(void) {
    const char *file = getenv("AT_FILE");
    return gettid() == getpid() && is_foreign() && (file == NULL || access(file, F_OK) == 0);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    static int seen;
    if (real == NULL) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    if (counts() && ++seen == atoi(getenv("AT_LOCK"))) raise(SIGINT);
    return real(mutex);
}

#include "jumps_out.c"
