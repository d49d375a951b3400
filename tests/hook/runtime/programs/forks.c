/* Forks in several ways: forks sleeps | ends | opens | many | executes. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

#define FORKS 100

static struct gpu gpu;
static _Atomic int stop;

static void launch(void) {
    check(gpu_spin(&gpu, NULL, 1000), "launch");
    printf("launched\n");
    fflush(stdout);
}

static void open_and_launch(void) {
    gpu = gpu_open(0);
    launch();
}

static int count_entries(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2;
}

static int wait_for(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t start_child(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child > 0) {
        printf("child %d\n", (int)child);
        fflush(stdout);
    }
    return child;
}

static void sleeps(void) {
    open_and_launch();
    if (start_child() == 0) pause();
    pause();
}

static void ends(void) {
    open_and_launch();
    pid_t child = start_child();
    if (child == 0) {
        printf("tasks %d\n", count_entries("/proc/self/task"));
        exit(0);
    }
    printf("child ended %d\n", wait_for(child));
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin))
        launch();
}

static void opens(void) {
    pid_t child = start_child();
    if (child == 0) {
        gpu = gpu_open(0);
        check(gpu_spin(&gpu, NULL, 1000), "launch");
        check(cuCtxSynchronize(), "cuCtxSynchronize");
        printf("child launched\n");
        exit(0);
    }
    open_and_launch();
    printf("child ended %d\n", wait_for(child));
    fflush(stdout);
}

static void *loop(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    while (!atomic_load(&stop))
        check(gpu_spin(&gpu, NULL, 10000), "launch");
    return nothing;
}

static void many(void) {
    gpu = gpu_open(0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, loop, NULL);
    int failed = 0;
    for (int i = 0; i < FORKS; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            CUdevice device;
            cuDeviceGet(&device, 0); /* whatever the driver says in a child */
            _exit(0);
        }
        failed += wait_for(child) != 0;
    }
    atomic_store(&stop, 1);
    printf("all ended %d\n", failed);
    fflush(stdout);
    _exit(failed);
}

static void executes(void) {
    open_and_launch();
    fflush(stdout);
    if (system("echo sockets $(readlink /proc/self/fd/* | grep -c socket:)") < 0) exit(9);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    const char *way = arguments[1];
    if (strcmp(way, "sleeps") == 0) sleeps();
    if (strcmp(way, "ends") == 0) ends();
    if (strcmp(way, "opens") == 0) opens();
    if (strcmp(way, "many") == 0) many();
    if (strcmp(way, "executes") == 0) executes();
    return 0;
}
