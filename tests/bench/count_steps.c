/* Counts the instructions of a program's first thread between two SIGUSR1 that it raises itself, by
 * single-stepping it: exact, and without any tool that a machine may lack.
 *
 * usage: count_steps PROGRAM [ARGUMENT ...]
 * The program runs as it would, its output included; a last line `steps N M ...` has one number for
 * each pair of signals. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS_MAX = 64 };

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
            signal_number = 0;
        } else if (signal_number == SIGTRAP) {
            count++;
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
