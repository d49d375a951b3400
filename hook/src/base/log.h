/* What the hook says. Errors are for the user of the kernel: one sentence on what is wrong and one
 * on what to do. Information and debug lines are for whoever asked for them (GPUSHARE_LOG). */
#pragma once

#include "base/options.h"

/* Writes one line when the level is asked for: errors to stderr (and to GPUSHARE_LOG_FILE), the
 * rest, with the monotonic time in milliseconds and the process id, to GPUSHARE_LOG_FILE or stderr.
 * Keeps no descriptor: the file is opened for each line. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
