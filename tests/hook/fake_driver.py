"""A libcuda.so.1 that has every entry point of the headers and does nothing in any of them: each
returns a number of its own, by which a test sees which function a wrapper really called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.hook.table import Entry

FIRST_RESULT = 10_000
DRIVER_VERSION = 13_050

# cuGetProcAddress as the real driver does it: the newest version not above the one asked for; of
# the per-thread variants alone when these are asked for and the name has any; no answer to a
# version above the driver's own.
_PROC_ADDRESS = """
#include <string.h>

static int find(const char *symbol, void **function, int version, unsigned long long flags,
                int *status) {
    const struct entry *best = 0;
    int known = 0, has_per_thread = 0;
    if (version > DRIVER_VERSION) return 1;
    for (const struct entry *e = entries; e->base; e++)
        if (strcmp(e->base, symbol) == 0) known = 1, has_per_thread |= e->per_thread;
    const int per_thread = has_per_thread && (flags & 2);
    for (const struct entry *e = entries; e->base; e++) {
        if (strcmp(e->base, symbol) != 0 || e->per_thread != per_thread) continue;
        if (e->version <= version && (!best || e->version > best->version)) best = e;
    }
    *function = best ? best->function : 0;
    if (status) *status = best ? 0 : known ? 2 : 1;
    return best || status ? 0 : 500;
}

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
    return find(symbol, function, version, flags, 0);
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version,
                        unsigned long long flags, int *status) {
    return find(symbol, function, version, flags, status);
}
"""


@dataclass(frozen=True)
class FakeDriver:
    """Where it was built, and what each of its functions returns."""

    directory: Path
    results: dict[str, int]


def results_of(entries: Iterable[Entry]) -> dict[str, int]:
    names = sorted(entry.exported_name for entry in entries if not entry.is_nvml)
    return {name: FIRST_RESULT + number for number, name in enumerate(names)}


def source_of(entries: list[Entry], results: dict[str, int]) -> str:
    """The C of the library."""
    cuda = [entry for entry in entries if not entry.is_nvml]
    lines = [f"#define DRIVER_VERSION {DRIVER_VERSION}"]
    for entry in cuda:
        name = entry.exported_name
        if entry.base == "cuGetProcAddress":
            lines.append(f"int {name}();")
        else:
            lines.append(f"int {name}() {{ return {results[name]}; }}")
    lines.append("static const struct entry {")
    lines.append("    const char *base; int version, per_thread; void *function;")
    lines.append("} entries[] = {")
    for entry in cuda:
        per_thread = int(entry.variant == "per_thread")
        name = entry.exported_name
        lines.append(f'    {{"{entry.base}", {entry.version}, {per_thread}, (void *){name}}},')
    lines.append("    {0}};")
    declarations = [line for line in lines if not line.startswith("int cuGetProcAddress")]
    forward = [
        "int cuGetProcAddress(const char *, void **, int, unsigned long long);",
        "int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);",
    ]
    return "\n".join([*forward, *declarations, _PROC_ADDRESS])
