/* Prints how much host memory the control groups leave to this process, and the number of the one
 * that leaves least. The argument stands for /sys/fs/cgroup. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "base/options.h"
#include "swap/cgroup.h"

static struct options options;

const struct options *options_get(void) {
    return &options;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    snprintf(options.cgroup_root, sizeof options.cgroup_root, "%s", argv[1]);
    const struct cgroup_host host = cgroup_look(UINT64_MAX);
    printf("%" PRIu64 " %" PRIu64 "\n", host.room_bytes, host.limit);
    return 0;
}
