/* Opening and closing the gate: for the agent alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Before the first use: finds out whether the kernel can interrupt all threads for a barrier. */
void gate_prepare(void);

/* Lets calls through; `windowed` bounds their work in flight. Wakes those that wait. */
void gate_open(bool windowed);

/* From here on no call enters; those inside are still on their way. */
void gate_shut(void);

/* How many of the calls that were inside when the gate was shut have not left yet. */
uint32_t gate_calls_inside(void);

/* The gate has been open without a window since the last drain: work may be in flight that no
 * event covers. */
bool gate_was_unbounded(void);
void gate_drained(void);

/* A number that changes with every gated call and synchronise, and whether a thread is in one. */
uint64_t gate_activity(bool *busy);

void gate_after_fork(void);
