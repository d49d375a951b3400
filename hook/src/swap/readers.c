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

static int look(struct dl_phdr_info *object, size_t bytes, void *argument) {
    const char **why = argument;
    (void)bytes;
    if (object->dlpi_name == NULL) return 0;
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *file = slash != NULL ? slash + 1 : object->dlpi_name;
    for (size_t i = 0; i < sizeof READERS / sizeof *READERS; i++)
        if (strncmp(file, READERS[i].file, strlen(READERS[i].file)) == 0) *why = READERS[i].why;
    return *why != NULL;
}

const char *readers_loaded(void) {
    const char *why = NULL;
    dl_iterate_phdr(look, &why);
    return why;
}
