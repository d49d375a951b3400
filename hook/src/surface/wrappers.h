/* What all generated wrappers begin with. */
#pragma once

#include "base/options.h"
#include "surface/interpose.h"

/* Everything that the generated files define is an export. */
#pragma GCC visibility push(default)

/* Declares `real`, the function that this wrapper stands for; NULL before its first call. */
#define REAL(name)                                                    \
    __typeof__(&name) real = (__typeof__(&name))atomic_load_explicit( \
        &interpose_real[ENTRY_##name], memory_order_relaxed)
/* Where the hook takes no part the slot stays empty, and the call goes straight on. */
#define REAL_OR_RETURN(name, arguments, absent)                    \
    REAL(name);                                                    \
    if (__builtin_expect(real == NULL, 0)) {                       \
        real = (__typeof__(&name))interpose_resolve(ENTRY_##name); \
        if (real == NULL) return absent;                           \
        if (!options_take_part()) return real arguments;           \
    }
