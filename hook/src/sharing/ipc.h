/* The older IPC (cuIpcGetMemHandle and so on) for movable memory: see decisions/0009. An exported
 * block stays on the device from then on. Handles that were not made here are the driver's: false.
 * Results are CUresult, as int. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* cuIpcGetMemHandle: passes the gate, so that the memory is on the device. */
bool ipc_get(void *handle, uint64_t address, const char *call_name, int *cu_result);
/* cuIpcOpenMemHandle and cuIpcCloseMemHandle. */
bool ipc_open(uint64_t *address, const void *handle, unsigned int flags, int *cu_result);
bool ipc_close(uint64_t address, int *cu_result);

/* A context has ended: what it has opened goes. */
void ipc_context_ended(uint64_t generation);

void ipc_after_fork(void);
