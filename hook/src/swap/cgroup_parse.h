/* What the kernel's files about memory and control groups say. PURE: texts in, numbers out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGROUP_NO_LIMIT UINT64_MAX

/* The file memory.max or memory.limit_in_bytes: `max`, and what version 1 means by it, is
 * CGROUP_NO_LIMIT. So is what cannot be read. */
uint64_t cgroup_parse_limit(const char *text);

/* The number behind `key` in lines of "key number", as memory.stat has them; 0 without one. */
uint64_t cgroup_parse_stat(const char *text, const char *key);

/* A line of /proc/meminfo in bytes; 0 without one. */
uint64_t cgroup_parse_meminfo(const char *text, const char *key);

/* From /proc/self/cgroup: the group's path in the hierarchy of `controller` (version 1), or in that
 * of version 2 ("" for the controller). False when it is in none. A path that leads out of what the
 * process can see becomes "/". */
bool cgroup_parse_path(const char *text, const char *controller, char *path, size_t bytes);

/* Cuts the last part off a path; false when it was the root. */
bool cgroup_parent(char *path);

/* What a level leaves, less a reserve: the larger of 256 MiB and 5 % of its limit. Pages of files
 * that are not in use count as free, since the kernel gives them up first. */
uint64_t cgroup_room(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes);
/* More than half of the reserve is gone. */
bool cgroup_is_short(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes);
