#include "swap/readers.h"

#include <link.h>
#include <stddef.h>
#include <string.h>

/* Decoders have frames of their own, and copy out of them by calls that pass the gate. */
static const struct {
    const char *file, *why;
} READERS[] = {
    {"libnvidia-encode.so",
     "This process has loaded the video encoder (libnvidia-encode), which uses GPU memory outside "
     "of turns. Restart the kernel when its video is done."},
    {"libnvidia-opticalflow.so",
     "This process has loaded optical flow (libnvidia-opticalflow), which uses GPU memory outside "
     "of turns. Restart the kernel when its video is done."},
};

static bool is_file(const struct dl_phdr_info *object, const char *begin) {
    if (object->dlpi_name == NULL) return false;
    const char *slash = strrchr(object->dlpi_name, '/');
    return strncmp(slash != NULL ? slash + 1 : object->dlpi_name, begin, strlen(begin)) == 0;
}

static int look(struct dl_phdr_info *object, size_t bytes, void *argument) {
    const char **why = argument;
    (void)bytes;
    for (size_t i = 0; i < sizeof READERS / sizeof *READERS; i++)
        if (is_file(object, READERS[i].file)) *why = READERS[i].why;
    return *why != NULL;
}

static int look_for_rdma(struct dl_phdr_info *object, size_t bytes, void *argument) {
    (void)bytes;
    return *(bool *)argument = is_file(object, "libibverbs.so");
}

bool readers_use_rdma(void) {
    bool found = false;
    dl_iterate_phdr(look_for_rdma, &found);
    return found;
}

const char *readers_loaded(void) {
    const char *why = NULL;
    dl_iterate_phdr(look, &why);
    return why;
}
