"""Generates the interposition table and the wrappers of the hook.

    python generate.py --include DIRECTORY_OF_CUDA_H --output DIRECTORY

Reads cuda_api.toml beside this file and the headers; writes wrappers_cuda.c, wrappers_nvml.c,
interpose_entries.h, interpose_table.c, check_versions.c, and for tests and people table.tsv. An
entry point that is not classified, or a classified name that no header has, ends it with an error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import emit
from classify import SpecError, check_complete, read_rules
from headers import HeaderError, cuda_entry_points, nvml_entry_points

SPEC = Path(__file__).with_name("cuda_api.toml")


def generate(include: Path, spec: Path) -> dict[str, str]:
    """The text of every generated file, by file name."""
    cuda = cuda_entry_points(include)
    nvml = nvml_entry_points(include)
    cuda_rules = read_rules(spec, "rule")
    nvml_rules = read_rules(spec, "nvml")
    check_complete(cuda_rules, (entry.base for entry in cuda), spec.name)
    check_complete(nvml_rules, (entry.base for entry in nvml), spec.name)
    wrapped_cuda = [entry for entry in cuda if cuda_rules[entry.base].wraps]
    wrapped_nvml = [entry for entry in nvml if nvml_rules[entry.base].wraps]
    wrapped = sorted(wrapped_cuda + wrapped_nvml, key=lambda entry: entry.exported_name)
    return {
        "interpose_entries.h": emit.entries_header(wrapped),
        "interpose_table.c": emit.table(wrapped, cuda),
        "wrappers_cuda.c": emit.cuda_wrappers(wrapped_cuda, cuda_rules),
        "wrappers_nvml.c": emit.nvml_wrappers(wrapped_nvml, nvml_rules),
        "check_versions.c": emit.version_checks(cuda),
        "table.tsv": emit.listing(cuda, cuda_rules) + emit.listing(nvml, nvml_rules, header=False),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the hook's wrappers and tables.")
    parser.add_argument("--include", type=Path, required=True, help="folder of cuda.h and nvml.h")
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    parser.add_argument("--spec", type=Path, default=SPEC, help="the classification")
    arguments = parser.parse_args()
    try:
        files = generate(arguments.include, arguments.spec)
    except (HeaderError, SpecError) as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 1
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (arguments.output / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
