"""Reads entry points and their prototypes out of the CUDA and NVML headers."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

LEGACY = "legacy"
PER_THREAD = "per_thread"

# Headers of the graphics interfaces need headers that a build machine may lack. Nothing of them is
# wrapped, so that their names, which stand in the typedefs, are enough.
_NAMES_ONLY_HEADERS = (
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
)

_TYPEDEF = re.compile(r"PFN_(?P<base>cu\w+?)_v(?P<version>\d+)(?P<suffix>_ptsz|_ptds)?\)\s*\(")
_EXPORTED = re.compile(r"(?P<base>cu\w+?)(?:_v(?P<ordinal>\d+))?(?P<suffix>_ptsz|_ptds)?")


class HeaderError(Exception):
    """The headers do not have the shape that this generator understands."""


@dataclass(frozen=True)
class Parameter:
    declaration: str
    name: str

    @property
    def is_stream(self) -> bool:
        return re.fullmatch(r"CUstream\s+\w+", self.declaration) is not None


@dataclass(frozen=True)
class EntryPoint:
    """One exported function: one ABI version, in one stream variant, of one API name."""

    exported_name: str
    base: str
    version: int  # the CUDA version that brought this ABI, 0 for NVML
    variant: str
    typedef: str
    parameters: tuple[Parameter, ...] | None  # None where only the name is known


def preprocess(include: Path, header: str, *definitions: str) -> str:
    """The header after the C preprocessor, comments and line marks gone."""
    command = ["cc", "-E", "-P", f"-I{include}", *(f"-D{d}" for d in definitions)]
    done = subprocess.run(
        [*command, str(include / header)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise HeaderError(f"{header} cannot be preprocessed: {done.stderr.strip()}")
    return done.stdout


def _parameters(text: str) -> tuple[Parameter, ...]:
    declarations = [" ".join(part.split()) for part in text.split(",")]
    if declarations == ["void"]:
        return ()
    parameters = []
    for declaration in declarations:
        match = re.fullmatch(r".*?(\w+)", declaration)
        if match is None or "[" in declaration or "(" in declaration:
            raise HeaderError(f"parameter {declaration!r} is of a shape not understood")
        parameters.append(Parameter(declaration, match[1]))
    return tuple(parameters)


def prototypes(text: str, result_type: str, prefix: str) -> dict[str, tuple[Parameter, ...]]:
    """Every function of this prefix in preprocessed text, with its parameters."""
    pattern = rf"\b{result_type}\s+({prefix}[A-Z]\w*)\s*\(([^;()]*(?:\([^;()]*\)[^;()]*)*)\)\s*;"
    return {match[1]: _parameters(match[2]) for match in re.finditer(pattern, text)}


def _variant(suffix: str | None) -> str:
    return PER_THREAD if suffix else LEGACY


def _versions(text: str) -> dict[tuple[str, str], list[tuple[int, str]]]:
    found: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for match in _TYPEDEF.finditer(text):
        typedef = match[0].split(")")[0]
        found[match["base"], _variant(match["suffix"])].append((int(match["version"]), typedef))
    return {key: sorted(set(versions)) for key, versions in found.items()}


def _exports(names: set[str]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        match = _EXPORTED.fullmatch(name)
        if match is None:
            raise HeaderError(f"{name} is not the name of a CUDA function")
        key = match["base"], _variant(match["suffix"])
        found[key].append((int(match["ordinal"] or 1), name))
    return {key: [name for _, name in sorted(numbered)] for key, numbered in found.items()}


def cuda_entry_points(include: Path) -> list[EntryPoint]:
    """Every entry point of libcuda.

    cuda.h numbers the ABI versions of a name (cuMemAlloc, cuMemAlloc_v2), cudaTypedefs.h dates
    them (2000, 3020). Both lists are in order, so the n-th of one is the n-th of the other; the
    compiler checks each pair, see generate.py."""
    functions = prototypes(
        preprocess(include, "cuda.h", "__CUDA_API_VERSION_INTERNAL"), "CUresult", "cu"
    )
    versions = _versions(preprocess(include, "cudaTypedefs.h", "__CUDA_API_VERSION_INTERNAL"))
    exports = _exports(set(functions))
    if set(versions) != set(exports):
        raise HeaderError(f"only in one header: {sorted(set(versions) ^ set(exports))}")
    entries = []
    for (base, variant), names in sorted(exports.items()):
        dated = versions[base, variant]
        if len(dated) != len(names):
            raise HeaderError(f"{base} has {len(names)} exports, {len(dated)} versions")
        for name, (version, typedef) in zip(names, dated, strict=True):
            parameters = functions[name]
            entries.append(EntryPoint(name, base, version, variant, typedef, parameters))
    return entries + _graphics_entry_points(include)


def _graphics_entry_points(include: Path) -> list[EntryPoint]:
    entries = []
    for header in _NAMES_ONLY_HEADERS:
        for (base, variant), dated in sorted(_versions((include / header).read_text()).items()):
            suffix = "_ptsz" if variant == PER_THREAD else ""
            for ordinal, (version, typedef) in enumerate(dated, start=1):
                number = "" if ordinal == 1 else f"_v{ordinal}"
                name = f"{base}{number}{suffix}"
                entries.append(EntryPoint(name, base, version, variant, typedef, None))
    return entries


def nvml_entry_points(include: Path) -> list[EntryPoint]:
    """Every entry point of libnvidia-ml, each under its exported name."""
    text = preprocess(include, "nvml.h", "NVML_NO_UNVERSIONED_FUNC_DEFS")
    functions = prototypes(text, "nvmlReturn_t", "nvml")
    functions |= prototypes(text, r"const\s+char\s*\*", "nvml")
    return [
        EntryPoint(name, name, 0, LEGACY, "", parameters)
        for name, parameters in sorted(functions.items())
    ]
