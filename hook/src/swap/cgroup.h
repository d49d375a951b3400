/* How much host memory this process may still take, by the machine and by each level of its control
 * groups. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The limit that leaves least is the machine's own; else it is the number of a control group's
 * directory, which is the same in all containers of the machine. */
#define CGROUP_MACHINE 0

struct cgroup_host {
    uint64_t room_bytes; /* less a reserve (cgroup_parse.h) */
    uint64_t limit;      /* which leaves no more */
    bool is_short;       /* that reserve is being used up: what can be given back should be */
};

/* Reads the kernel's files: some 100 us, and more where groups are large, but for a level that
 * leaves `enough_bytes` without what others count as free there (pages of files that are not in
 * use). */
struct cgroup_host cgroup_look(uint64_t enough_bytes);
