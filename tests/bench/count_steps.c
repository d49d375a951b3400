/* Counts the instructions of a program's first thread between two SIGUSR1 that it raises itself, by
 * single-stepping it: exact, and without any tool that a machine may lack. Where it knows the
 * processor's registers it leaves out the driver with all that it calls: there a busy machine
 * makes a difference.
 *
 * usage: count_steps PROGRAM [ARGUMENT ...]
 * The program runs as it would, its output included; a last line `steps N M ...` has one number for
 * each pair of signals. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS_MAX = 64, RANGES_MAX = 8 };

static struct range {
    unsigned long from, to;
} driver[RANGES_MAX];
static int ranges;
static unsigned long returns_to, returns_at; /* where the driver's caller goes on; 0: not within */

static void find_driver(pid_t pid) {
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps != NULL && ranges < RANGES_MAX && fgets(line, sizeof(line), maps) != NULL) {
        struct range found;
        char may[8];
        if (strstr(line, "libcuda.so") == NULL) continue;
        if (sscanf(line, "%lx-%lx %7s", &found.from, &found.to, may) == 3 && may[2] == 'x')
            driver[ranges++] = found;
    }
    if (maps != NULL) fclose(maps);
}

/* Whether the instruction that comes next is the driver's, or of what that calls. */
static int is_within_driver(pid_t pid) {
#ifdef __x86_64__
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &registers) != 0) return 0;
    if (returns_to != 0) {
        if (registers.rip != returns_to || registers.rsp <= returns_at) return 1;
        returns_to = 0;
    }
    for (int i = 0; i < ranges; i++) {
        if (registers.rip < driver[i].from || registers.rip >= driver[i].to) continue;
        returns_at = registers.rsp;
        returns_to = (unsigned long)ptrace(PTRACE_PEEKDATA, pid, (void *)registers.rsp, NULL);
        return 1;
    }
#else
    (void)pid;
#endif
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: count_steps PROGRAM [ARGUMENT ...]\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    long steps[PAIRS_MAX], count = 0;
    int pairs = 0, stepping = 0, status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        int signal_number = WSTOPSIG(status);
        if (signal_number == SIGUSR1) {
            if (stepping && pairs < PAIRS_MAX) steps[pairs++] = count;
            stepping = !stepping;
            count = 0;
            if (ranges == 0) find_driver(child);
            signal_number = 0;
        } else if (signal_number == SIGTRAP) {
            count += !is_within_driver(child);
            signal_number = 0;
        }
        long request = stepping ? PTRACE_SINGLESTEP : PTRACE_CONT;
        if (ptrace(request, child, NULL, (void *)(long)signal_number) != 0) return 3;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
    printf("steps");
    for (int i = 0; i < pairs; i++)
        printf(" %ld", steps[i]);
    printf("\n");
    return 0;
}
