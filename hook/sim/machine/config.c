#define _GNU_SOURCE
#include "machine/config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parameter {
    const char *key;
    const char *environment;
    uint64_t fallback;
    uint64_t minimum;
    uint64_t maximum;
};

enum parameter_index {
    DEVICES,
    MIG_INSTANCES,
    DEVICE_BYTES,
    COPY_RATE,
    LAUNCH_NS,
    CONTEXT_BYTES,
    DRIVER_VERSION,
    PARAMETERS
};

static const struct parameter parameters[PARAMETERS] = {
    [DEVICES] = {"devices", SIM_ENV_DEVICES, 1, 1, 8},
    [MIG_INSTANCES] = {"mig_instances", SIM_ENV_MIG_INSTANCES, 0, 0, 7},
    [DEVICE_BYTES] = {"device_bytes", SIM_ENV_DEVICE_BYTES, 2ull << 30, 4ull << 20, 1ull << 40},
    [COPY_RATE] = {"copy_bytes_per_s", SIM_ENV_COPY_BYTES_PER_S, 1000000000, 1000, 1ull << 40},
    [LAUNCH_NS] = {"launch_ns", SIM_ENV_LAUNCH_NS, 2000, 0, 1000000000},
    [CONTEXT_BYTES] = {"context_bytes", SIM_ENV_CONTEXT_BYTES, 32ull << 20, 0, 1ull << 34},
    [DRIVER_VERSION] = {"driver_version", SIM_ENV_DRIVER_VERSION, 13000, 11000, 13999},
};

/* "2G", "512M", "64k" or plain bytes; the fallback for anything else or out of bounds. */
static uint64_t parse_value(const char *text, const struct parameter *parameter) {
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text) return parameter->fallback;
    switch (*end) {
        case 'k':
        case 'K':
            value <<= 10;
            break;
        case 'm':
        case 'M':
            value <<= 20;
            break;
        case 'g':
        case 'G':
            value <<= 30;
            break;
        default:
            break;
    }
    if (value < parameter->minimum || value > parameter->maximum) return parameter->fallback;
    return value;
}

static void read_file(FILE *file, uint64_t values[PARAMETERS]) {
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        char *equals = strchr(line, '=');
        if (line[0] == '#' || equals == NULL) continue;
        *equals = '\0';
        for (int i = 0; i < PARAMETERS; i++) {
            if (strcmp(line, parameters[i].key) == 0)
                values[i] = parse_value(equals + 1, &parameters[i]);
        }
    }
}

static void write_file(const char *path, const uint64_t values[PARAMETERS]) {
    FILE *file = fopen(path, "we");
    if (file == NULL) return; /* the machine still works; only nobody can read its parameters */
    for (int i = 0; i < PARAMETERS; i++) {
        fprintf(file, "%s=%" PRIu64 "\n", parameters[i].key, values[i]);
    }
    fclose(file);
}

void config_load(const char *directory, struct sim_config *config) {
    uint64_t values[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        const char *text = getenv(parameters[i].environment);
        values[i] = text == NULL ? parameters[i].fallback : parse_value(text, &parameters[i]);
    }
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/config", directory);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        read_file(file, values);
        fclose(file);
    } else {
        write_file(path, values);
    }
    config->device_count = (uint32_t)values[DEVICES];
    config->mig_instances = (uint32_t)values[MIG_INSTANCES];
    config->device_bytes = values[DEVICE_BYTES];
    config->copy_bytes_per_s = values[COPY_RATE];
    config->launch_ns = values[LAUNCH_NS];
    config->context_bytes = values[CONTEXT_BYTES];
    config->driver_version = (uint32_t)values[DRIVER_VERSION];
    while (config->device_count * (1 + config->mig_instances) > SIM_DEVICES_MAX)
        config->device_count--;
}
