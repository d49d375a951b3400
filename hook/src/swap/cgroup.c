#include "swap/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "base/uncancelled.h"
#include "swap/cgroup_parse.h"

#define TEXT_BYTES 8192

/* The files of a version of control groups. */
struct hierarchy {
    const char *mount;      /* below the root that options.h names */
    const char *controller; /* in /proc/self/cgroup */
    const char *limit, *used, *reclaimable;
    const char *slowed_from; /* who uses more is slowed down; NULL: there is no such file */
};

static const struct hierarchy HIERARCHIES[] = {
    {"", "", "memory.max", "memory.current", "inactive_file", "memory.high"},
    {"/unified", "", "memory.max", "memory.current", "inactive_file", "memory.high"},
    {"/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     NULL},
};

static bool read_text(const char *path, char *text) {
    UNCANCELLED();
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    size_t used = 0;
    ssize_t got;
    while (used < TEXT_BYTES - 1 && (got = read(file, text + used, TEXT_BYTES - 1 - used)) > 0)
        used += (size_t)got;
    close(file);
    text[used] = 0;
    return used > 0;
}

static bool read_below(const char *directory, const char *name, char *text) {
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof(path), "%s/%s", directory, name);
    return length > 0 && (size_t)length < sizeof(path) && read_text(path, text);
}

static void note(struct cgroup_host *host, uint64_t limit, uint64_t limit_bytes,
                 uint64_t used_bytes, uint64_t reclaimable_bytes) {
    const uint64_t room_bytes = cgroup_room(limit_bytes, used_bytes, reclaimable_bytes);
    if (room_bytes < host->room_bytes) {
        host->room_bytes = room_bytes;
        host->limit = limit;
    }
    if (cgroup_is_short(limit_bytes, used_bytes, reclaimable_bytes)) host->is_short = true;
}

static uint64_t number_of(const char *directory) {
    struct stat found;
    return stat(directory, &found) == 0 ? (uint64_t)found.st_ino : CGROUP_MACHINE;
}

/* A level without these files limits nothing: it is the root, or not ours to see. */
static void look_at_level(struct cgroup_host *host, const struct hierarchy *hierarchy,
                          const char *path, uint64_t enough_bytes) {
    char directory[PATH_MAX], text[TEXT_BYTES];
    const int length = snprintf(directory, sizeof(directory), "%s%s%s", options_get()->cgroup_root,
                                hierarchy->mount, path);
    if (length < 0 || (size_t)length >= sizeof(directory)) return;
    if (!read_below(directory, hierarchy->limit, text)) return;
    uint64_t limit_bytes = cgroup_parse_limit(text);
    if (hierarchy->slowed_from && read_below(directory, hierarchy->slowed_from, text)) {
        const uint64_t slowed_from_bytes = cgroup_parse_limit(text);
        if (slowed_from_bytes < limit_bytes) limit_bytes = slowed_from_bytes;
    }
    if (limit_bytes == CGROUP_NO_LIMIT || !read_below(directory, hierarchy->used, text)) return;
    const uint64_t used_bytes = cgroup_parse_limit(text);
    uint64_t reclaimable_bytes = 0;
    /* The kernel may have to add up those of all groups below. */
    if (cgroup_room(limit_bytes, used_bytes, 0) < enough_bytes &&
        read_below(directory, "memory.stat", text))
        reclaimable_bytes = cgroup_parse_stat(text, hierarchy->reclaimable);
    note(host, number_of(directory), limit_bytes, used_bytes, reclaimable_bytes);
}

/* In a container the path may name a directory that is not to be seen there, while the root of the
 * mount is the container's own group: so every level up to it is looked at. */
static void look_at_hierarchy(struct cgroup_host *host, const struct hierarchy *hierarchy,
                              const char *groups, uint64_t enough_bytes) {
    char path[PATH_MAX];
    if (!cgroup_parse_path(groups, hierarchy->controller, path, sizeof(path))) return;
    do
        look_at_level(host, hierarchy, path, enough_bytes);
    while (cgroup_parent(path));
}

struct cgroup_host cgroup_look(uint64_t enough_bytes) {
    char text[TEXT_BYTES];
    struct cgroup_host host = {.room_bytes = CGROUP_NO_LIMIT};
    if (!read_text("/proc/meminfo", text)) return (struct cgroup_host){0};
    const uint64_t total_bytes = cgroup_parse_meminfo(text, "MemTotal");
    note(&host, CGROUP_MACHINE, total_bytes,
         total_bytes - cgroup_parse_meminfo(text, "MemAvailable"), 0);
    if (!read_text("/proc/self/cgroup", text)) return host;
    for (size_t i = 0; i < sizeof(HIERARCHIES) / sizeof(HIERARCHIES[0]); i++)
        look_at_hierarchy(&host, &HIERARCHIES[i], text, enough_bytes);
    return host;
}
