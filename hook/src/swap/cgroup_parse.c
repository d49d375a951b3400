#include "swap/cgroup_parse.h"

#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES_MIN ((uint64_t)256 << 20)
/* Version 1 says "no limit" by the largest multiple of a page that a signed word can hold. */
#define LIMIT_BYTES_MAX ((uint64_t)1 << 62)

uint64_t cgroup_parse_limit(const char *text) {
    char *end = NULL;
    uint64_t bytes = strtoull(text, &end, 10);
    return end == text || bytes >= LIMIT_BYTES_MAX ? CGROUP_NO_LIMIT : bytes;
}

/* Behind `key` at the start of a line, where `stop` follows; NULL where it is not. */
static const char *behind_key(const char *text, const char *key, char stop) {
    const size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) == 0 && line[length] == stop) return line + length + 1;
        if (*line == 0) break;
    }
    return NULL;
}

uint64_t cgroup_parse_stat(const char *text, const char *key) {
    const char *number = behind_key(text, key, ' ');
    return number ? strtoull(number, NULL, 10) : 0;
}

uint64_t cgroup_parse_meminfo(const char *text, const char *key) {
    const char *number = behind_key(text, key, ':');
    return number ? strtoull(number, NULL, 10) * 1024 : 0;
}

/* Whether `name` is one of the words of a list with commas. */
static bool lists(const char *list, const char *list_end, const char *name) {
    const size_t length = strlen(name);
    while (list < list_end) {
        const char *comma = memchr(list, ',', (size_t)(list_end - list));
        const char *word_end = comma ? comma : list_end;
        if ((size_t)(word_end - list) == length && strncmp(list, name, length) == 0) return true;
        list = word_end + 1;
    }
    return false;
}

bool cgroup_parse_path(const char *text, const char *controller, char *path, size_t bytes) {
    for (const char *line = text; *line;) {
        const char *line_end = strchrnul(line, '\n');
        const char *first = memchr(line, ':', (size_t)(line_end - line));
        const char *second = first ? memchr(first + 1, ':', (size_t)(line_end - first - 1)) : NULL;
        const bool unified = second == first + 1;
        if (second && (*controller ? lists(first + 1, second, controller) : unified)) {
            const size_t length = (size_t)(line_end - second - 1);
            if (length == 0 || length >= bytes) return false;
            memcpy(path, second + 1, length);
            path[length] = 0;
            if (strstr(path, "/..")) strcpy(path, "/");
            return true;
        }
        line = *line_end ? line_end + 1 : line_end;
    }
    return false;
}

bool cgroup_parent(char *path) {
    char *slash = strrchr(path, '/');
    if (slash == NULL || path[1] == 0) return false;
    slash[slash == path ? 1 : 0] = 0;
    return true;
}

static uint64_t reserve_of(uint64_t limit_bytes) {
    const uint64_t reserve_bytes = limit_bytes / 20;
    return reserve_bytes > RESERVE_BYTES_MIN ? reserve_bytes : RESERVE_BYTES_MIN;
}

static uint64_t left_of(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes) {
    used_bytes -= reclaimable_bytes < used_bytes ? reclaimable_bytes : used_bytes;
    return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
}

uint64_t cgroup_room(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes) {
    if (limit_bytes == CGROUP_NO_LIMIT) return CGROUP_NO_LIMIT;
    const uint64_t left_bytes = left_of(limit_bytes, used_bytes, reclaimable_bytes);
    const uint64_t reserve_bytes = reserve_of(limit_bytes);
    return left_bytes > reserve_bytes ? left_bytes - reserve_bytes : 0;
}

bool cgroup_is_short(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes) {
    if (limit_bytes == CGROUP_NO_LIMIT) return false;
    return left_of(limit_bytes, used_bytes, reclaimable_bytes) < reserve_of(limit_bytes) / 2;
}
