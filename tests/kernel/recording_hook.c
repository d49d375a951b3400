/* Stands in for the hook where a test asks what the bootstrap tells it: every report is a line in
 * the file $RECORDING. The count of cancelled waits goes up with each call of `cancel`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t cancelled;

static void record(const char *what) {
    const char *path = getenv("RECORDING");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d\n", what, (int)getpid());
    if (write(file, line, (size_t)length) < 0) perror("recording_hook");
    close(file);
}

int gpushare_api_version(void);
void gpushare_cell_began(void);
void gpushare_cell_ended(void);
int gpushare_cancel_waits(void);
uint64_t gpushare_waits_cancelled(void);
int recording_wait(void);
void recording_wait_raises(void);

int gpushare_api_version(void) {
    return 1;
}

void gpushare_cell_began(void) {
    record("began");
}

void gpushare_cell_ended(void) {
    record("ended");
}

int gpushare_cancel_waits(void) {
    return 0;
}

uint64_t gpushare_waits_cancelled(void) {
    return cancelled;
}

/* A gated call that waits until the file $RECORDING.cancel is there, and is cancelled then. */
int recording_wait(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s.cancel", getenv("RECORDING"));
    record("waiting");
    while (access(path, F_OK) != 0)
        usleep(1000);
    unlink(path);
    cancelled++;
    return 800;
}

/* The same as extensions in C do it, which raise an exception themselves. For ctypes.PyDLL. */
void recording_wait_raises(void) {
    void (*set)(void *, const char *) =
        (void (*)(void *, const char *))dlsym(RTLD_DEFAULT, "PyErr_SetString");
    void **runtime_error = dlsym(RTLD_DEFAULT, "PyExc_RuntimeError");
    recording_wait();
    set(*runtime_error, "CUDA error: operation not permitted");
}
