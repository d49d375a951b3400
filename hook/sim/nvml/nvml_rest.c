/* Every function of nvml.h, so that other tools find what they look up when they start. One that
 * another file defines takes the place of the weak one here. */
#include "nvml/nvml_rest.h"

/* The arguments are not looked at, so the prototypes of nvml.h are not needed. */
static int answer(void) {
    return nvml_not_simulated();
}

#define NOT_SIMULATED(name) \
    int name(void) __attribute__((weak, alias("answer"), visibility("default")));
#include "nvml_rest.inc"
