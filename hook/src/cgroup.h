/* How much host memory this process may still take, by the machine and by each level of its control
 * groups. */
#ifndef GPUSHARE_CGROUP_H
#define GPUSHARE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct cgroup_host {
    uint64_t room_bytes; /* less a reserve (cgroup_parse.h) */
    bool is_short;       /* that reserve is being used up: what can be given back should be */
};

/* Reads the kernel's files: some 100 us. */
struct cgroup_host cgroup_look(void);

#pragma GCC visibility pop
#endif
