/* What the executor does with one op: when it may begin, its time on an engine, its effect on
 * memory, its line in the journal. Called from the executor's thread alone. */
#ifndef GPUSHARE_SIM_EXECUTE_H
#define GPUSHARE_SIM_EXECUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "streams/op.h"
#include "streams/stream.h"

#define EXECUTE_POLL_NS 50000u /* how often memory is looked at that somebody else may write */

#pragma GCC visibility push(hidden)

/* True when nothing but its turn on an engine holds the op up. Otherwise *look_again_ns may be
 * lowered: things that nobody reports are looked at again at that time. */
bool execute_is_ready(struct stream *stream, const struct op *op, uint64_t *look_again_ns);

/* Begins the op. */
void execute_begin(struct stream *stream, const struct op *op);

/* True when the op is over. */
bool execute_continue(struct stream *stream, const struct op *op, uint64_t *look_again_ns);

/* The op is given up: its context has a sticky error. */
void execute_abandon(struct stream *stream, const struct op *op);

/* Writes the op's line into the journal. */
void execute_journal(const struct stream *stream, const struct op *op, uint64_t started_ns,
                     uint64_t ended_ns);

#pragma GCC visibility pop
#endif
