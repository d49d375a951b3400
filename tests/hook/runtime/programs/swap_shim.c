/* swap_plan.c and cgroup_parse.c behind plain functions, for ctypes. */
#include "swap/cgroup_parse.h"
#include "swap/swap_plan.h"

int sp_plan(const struct swap_view *view) {
    return (int)swap_plan(view);
}

int sp_host_plan(const struct swap_host_view *view) {
    return (int)swap_host_plan(view);
}

uint64_t sp_host_wanted(const struct swap_host_view *view) {
    return swap_host_wanted(view);
}

int sp_host_is_tight(uint64_t room_bytes, uint64_t parked_bytes) {
    return swap_host_is_tight(room_bytes, parked_bytes);
}

uint64_t cg_limit(const char *text) {
    return cgroup_parse_limit(text);
}

uint64_t cg_stat(const char *text, const char *key) {
    return cgroup_parse_stat(text, key);
}

uint64_t cg_meminfo(const char *text, const char *key) {
    return cgroup_parse_meminfo(text, key);
}

int cg_path(const char *text, const char *controller, char *path, size_t bytes) {
    return cgroup_parse_path(text, controller, path, bytes);
}

int cg_parent(char *path) {
    return cgroup_parent(path);
}

uint64_t cg_room(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes) {
    return cgroup_room(limit_bytes, used_bytes, reclaimable_bytes);
}

int cg_is_short(uint64_t limit_bytes, uint64_t used_bytes, uint64_t reclaimable_bytes) {
    return cgroup_is_short(limit_bytes, used_bytes, reclaimable_bytes);
}
