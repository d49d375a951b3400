#define _GNU_SOURCE
#include "machine/visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void visible_uuid_text(const struct sim_device *device, char text[48]) {
    const uint8_t *u = device->uuid;
    snprintf(text, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             device->role == SIM_DEVICE_MIG_INSTANCE ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4],
             u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* A UUID may be shortened as long as it names one device. -1: none or several. */
static int find_by_uuid(const struct sim_segment *segment, const char *word) {
    int found = -1;
    for (uint32_t d = 0; d < segment->device_count; d++) {
        char text[48];
        if (segment->devices[d].role == SIM_DEVICE_MIG_PARENT) continue;
        visible_uuid_text(&segment->devices[d], text);
        if (strncasecmp(text, word, strlen(word)) != 0) continue;
        if (found >= 0) return -1;
        found = (int)d;
    }
    return found;
}

/* The ordinal counts physical devices; one in MIG mode stands for its first instance. */
static int find_by_ordinal(const struct sim_segment *segment, long ordinal) {
    for (uint32_t d = 0; d < segment->device_count; d++) {
        uint32_t role = segment->devices[d].role;
        if (role == SIM_DEVICE_MIG_INSTANCE) continue;
        if (ordinal-- == 0) return role == SIM_DEVICE_MIG_PARENT ? (int)d + 1 : (int)d;
    }
    return -1;
}

static int find_device(const struct sim_segment *segment, const char *word) {
    if (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0)
        return find_by_uuid(segment, word);
    char *end = NULL;
    long ordinal = strtol(word, &end, 10);
    return end == word || ordinal < 0 ? -1 : find_by_ordinal(segment, ordinal);
}

static int all_devices(const struct sim_segment *segment, uint32_t indices[SIM_DEVICES_MAX]) {
    int count = 0;
    for (long ordinal = 0; count < SIM_DEVICES_MAX; ordinal++) {
        int index = find_by_ordinal(segment, ordinal);
        if (index < 0) break;
        indices[count++] = (uint32_t)index;
    }
    return count;
}

/* A process sees one MIG instance at most, and nothing beside it. */
static int keep_one_instance(const struct sim_segment *segment, uint32_t *indices, int count) {
    for (int i = 0; i < count; i++) {
        if (segment->devices[indices[i]].role == SIM_DEVICE_MIG_INSTANCE) {
            indices[0] = indices[i];
            return 1;
        }
    }
    return count;
}

int visible_devices(const struct sim_segment *segment, uint32_t indices[SIM_DEVICES_MAX]) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (list == NULL) return keep_one_instance(segment, indices, all_devices(segment, indices));
    char copy[1024];
    char *rest = NULL;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        while (isspace((unsigned char)*word))
            word++;
        int index = find_device(segment, word);
        /* As the real driver: the list ends at the first name that is wrong; a name that comes
         * twice makes it empty. */
        if (index < 0 || count == SIM_DEVICES_MAX) break;
        for (int i = 0; i < count; i++) {
            if (indices[i] == (uint32_t)index) return 0;
        }
        indices[count++] = (uint32_t)index;
    }
    return keep_one_instance(segment, indices, count);
}
