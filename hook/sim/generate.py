"""Writes the simulated driver's entry points from the CUDA headers and from what is implemented.

Input: cuda.h (every ABI version of every function), cudaTypedefs.h (which CUDA version each came
with) and the sources in the folders beside this file: a function is simulated when one of them
defines `sim_<exported name>`. Stream variants (_ptsz, _ptds) are never written by hand: they are
the plain function with the default stream meaning the calling thread's own one.

Output, into the directory given: sim_api.h (prototypes), entry.c (exported functions and the table
for cuGetProcAddress), error_names.inc, and nvml_rest.inc (the functions of nvml.h).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

STREAM_VARIANT = re.compile(r"_(ptsz|ptds)$")
EXPORTED = re.compile(r"(cu\w+?)(?:_v(\d+))?(?:_(pt[sd][sz]))?$")
PROTOTYPE = re.compile(r"CUresult\s+(cu\w+)\s*\(([^;]*?)\)\s*;")
VERSION = re.compile(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_(pt[sd][sz]))?\)")
DEFINITION = re.compile(r"^CUresult sim_(cu\w+)\(", re.MULTILINE)
NVML_PROTOTYPE = re.compile(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(")
ERROR = re.compile(r"\b(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)")

ANYTIME = {  # callable before cuInit
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetExportTable",
}


@dataclass(frozen=True)
class Function:
    exported: str
    base: str
    abi: int
    variant: str  # "", "ptsz" or "ptds"
    parameters: str
    arguments: tuple[str, ...]
    cuda_version: int
    implementation: str  # the exported name whose `sim_` function does it; "": not simulated

    @property
    def simulated(self) -> bool:
        return self.implementation != ""


def find_include_directory() -> Path:
    import nvidia.cu13  # type: ignore[import-untyped]

    return Path(next(iter(nvidia.cu13.__path__))) / "include"


def split_parameters(parameters: str) -> tuple[str, ...]:
    """The names of the parameters: the last word of each."""
    if parameters.strip() in ("", "void"):
        return ()
    names = []
    for part in parameters.split(","):
        words = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", part))
        names.append(words[-1])
    return tuple(names)


def read_functions(include: Path, sources: Path) -> list[Function]:
    compiler = (os.environ.get("CC") or "cc").split()
    command = [*compiler, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", str(include / "cuda.h")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    versions: dict[tuple[str, str], set[int]] = defaultdict(set)
    typedefs = (include / "cudaTypedefs.h").read_text()
    for base, version, variant in VERSION.findall(typedefs):
        versions[base, variant].add(int(version))
    simulated = set()
    for source in sources.glob("*/*.c"):
        simulated.update(DEFINITION.findall(source.read_text()))
    prototypes = {name: " ".join(arguments.split()) for name, arguments in PROTOTYPE.findall(text)}
    abis: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name in prototypes:
        base, abi, variant = parse_name(name)
        abis[base, variant].append(abi)
    functions = []
    for name, parameters in prototypes.items():
        base, abi, variant = parse_name(name)
        known = sorted(versions[base, variant])
        ordered = sorted(abis[base, variant])
        if len(known) != len(ordered):
            raise SystemExit(f"{base}: {len(ordered)} ABI versions, {len(known)} CUDA versions")
        functions.append(
            Function(
                exported=name,
                base=base,
                abi=abi,
                variant=variant,
                parameters=parameters,
                arguments=split_parameters(parameters),
                cuda_version=known[ordered.index(abi)],
                implementation=find_implementation(name, prototypes, simulated),
            )
        )
    missing = simulated - set(prototypes)
    if missing:
        raise SystemExit(f"defined, but in no header: {sorted(missing)}")
    return sorted(functions, key=lambda f: (f.base, f.cuda_version, f.exported))


def find_implementation(name: str, prototypes: dict[str, str], simulated: set[str]) -> str:
    """Its own, or that of a newer ABI version with the very same parameters."""
    plain = STREAM_VARIANT.sub("", name)
    if plain in simulated:
        return plain
    base, abi, _ = parse_name(name)
    for newer in range(abi + 1, 10):
        candidate = f"{base}_v{newer}"
        if candidate in simulated and prototypes.get(candidate) == prototypes[name]:
            return candidate
    return ""


def parse_name(name: str) -> tuple[str, int, str]:
    match = EXPORTED.match(name)
    assert match is not None
    return match[1], int(match[2] or 1), match[3] or ""


def entry_point(index: int, function: Function) -> list[str]:
    lines = [f"CUresult CUDAAPI {function.exported}({function.parameters}) {{"]
    if not function.simulated:
        lines += [f"    (void){name};" for name in function.arguments]
        lines += [f"    return entry_not_simulated({index});", "}"]
        return lines
    call = f"sim_{function.implementation}({', '.join(function.arguments)})"
    lines += [
        f'    process_call = "{function.base}";',
        "    if (__builtin_expect(atomic_load_explicit(&entry_word, memory_order_acquire), 0)) {",
        f"        CUresult refused = entry_slow({index});",
        "        if (refused != CUDA_SUCCESS) return refused;",
        "    }",
    ]
    if function.variant:
        lines += [
            "    bool before = process_default_stream_is_per_thread;",
            "    process_default_stream_is_per_thread = true;",
            f"    CUresult result = {call};",
            "    process_default_stream_is_per_thread = before;",
            "    return result;",
        ]
    else:
        lines += [f"    return {call};"]
    lines.append("}")
    return lines


def write_api(functions: list[Function]) -> str:
    lines = [
        "/* Generated by hook/sim/generate.py from cuda.h. */",
        "#ifndef GPUSHARE_SIM_API_H",
        "#define GPUSHARE_SIM_API_H",
        "#include <cuda.h>",
        "#pragma GCC visibility push(hidden)",
    ]
    lines += [f"CUresult sim_{f.exported}({f.parameters});" for f in functions if not f.variant]
    return "\n".join([*lines, "#pragma GCC visibility pop", "#endif", ""])


def write_entry(functions: list[Function]) -> str:
    lines = [
        "/* Generated by hook/sim/generate.py from cuda.h, cudaTypedefs.h and the sources. */",
        "#define __CUDA_API_PUSH_VISIBILITY_DEFAULT",
        '#include "sim_api.h"',
        "#include <stdbool.h>",
        '#include "surface/entry.h"',
        '#include "process/process.h"',
        "",
    ]
    for index, function in enumerate(functions):
        lines += [*entry_point(index, function), ""]
    lines.append("const struct entry_row entry_table[] = {")
    for f in functions:
        anytime = "true" if f.base in ANYTIME else "false"
        simulated = "true" if f.simulated else "false"
        variant = "true" if f.variant else "false"
        lines.append(
            f'    {{"{f.base}", {f.cuda_version}, {variant}, {anytime}, {simulated}, '
            f"(void *){f.exported}}},"
        )
    lines += ["};", f"const unsigned entry_count = {len(functions)};", ""]
    return "\n".join(lines)


def write_error_names(include: Path) -> str:
    text = (include / "cuda.h").read_text()
    body = text[: text.index("} CUresult;")]
    body = body[body.rindex("typedef enum cudaError_enum") :]
    lines = ["/* Generated by hook/sim/generate.py from cuda.h. */"]
    for name, value in ERROR.findall(body):
        sentence = re.sub(r"^CUDA_(ERROR_)?", "", name).replace("_", " ").lower()
        sentence = "no error" if value == "0" else sentence
        lines.append(f'{{{value}, "{name}", "{sentence}"}},')
    return "\n".join([*lines, ""])


def write_nvml_rest(include: Path) -> str:
    names = dict.fromkeys(NVML_PROTOTYPE.findall((include / "nvml.h").read_text()))
    lines = ["/* Generated by hook/sim/generate.py from nvml.h. */"]
    return "\n".join([*lines, *(f"NOT_SIMULATED({name})" for name in names), ""])


def main() -> None:
    if sys.argv[1:] == ["--include-directory"]:
        print(find_include_directory())
        return
    output = Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    include = find_include_directory()
    functions = read_functions(include, Path(__file__).parent)
    (output / "sim_api.h").write_text(write_api(functions))
    (output / "entry.c").write_text(write_entry(functions))
    (output / "error_names.inc").write_text(write_error_names(include))
    (output / "nvml_rest.inc").write_text(write_nvml_rest(include))


if __name__ == "__main__":
    main()
