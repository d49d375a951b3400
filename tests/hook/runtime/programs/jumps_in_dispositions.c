/* jumps_out, to which SIGINT comes while the hook changes what the process does with it: at the
 * call of sigaction whose number is in AT_CALL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

int sigaction(int number, const struct sigaction *wanted, struct sigaction *before) {
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    static int seen;
    if (real == NULL)
        real = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT,
                                                                                 "sigaction");
    const int result = real(number, wanted, before);
    if (number == SIGINT && ++seen == atoi(getenv("AT_CALL"))) raise(SIGINT);
    return result;
}

#include "jumps_out.c"
