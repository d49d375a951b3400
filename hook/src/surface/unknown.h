/* Functions of the driver that no header had when this library was built: what they do with memory
 * is not known. A program may ask for as many as it likes (the CUDA runtime asks for hundreds);
 * with the first one that it calls, the process's memory stays on the device. */
#pragma once

#define UNKNOWN_STUBS 256

#ifndef __ASSEMBLER__

#include <stdatomic.h>
#include <stdint.h>

/* A function that goes to `real` and does what is to be done before. */
void *unknown_stub_of(void *real, const char *name);

/* ---- for unknown_stubs.S ---- */

extern _Atomic(void *) unknown_real[UNKNOWN_STUBS];
/* One was called and its caller let through: nothing is left to be done. */
extern _Atomic uint8_t unknown_is_used;
/* 0: the call may go to the driver; else it returns this result. */
int unknown_called(uint32_t stub);
/* UNKNOWN_STUBS functions, each of UNKNOWN_STUB_BYTES. */
extern const char unknown_stubs[];

#endif

#define UNKNOWN_STUB_BYTES 16
