"""Which symbol versions a shared library asks of others, read from its bytes. Pure.

A program that preloads a library which asks for a version that the libc here does not have does not
start at all. A library for another processor is left out, with a line on stderr that notebooks
never show.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_MACHINE_AT = 18
_SHT_VERNEED = 0x6FFFFFFE
_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)*)")


class NotElf(ValueError):
    """These bytes are no 64-bit little-endian ELF file."""


def newest_glibc(image: bytes) -> str:
    """The newest `GLIBC_x.y` that the library needs, as `x.y`; empty when it needs none."""
    versions = [match[1] for name in needed_versions(image) if (match := _GLIBC.fullmatch(name))]
    return max(versions, key=numbers, default="")


def numbers(version: str) -> tuple[int, ...]:
    """`2.34` as numbers, so that versions can be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def processor(image: bytes) -> int:
    """For which kind of processor these bytes are (elf.h, EM_…)."""
    if len(image) < _MACHINE_AT + 2:
        raise NotElf("it is no ELF file")
    return int.from_bytes(image[_MACHINE_AT : _MACHINE_AT + 2], "little")


def needed_versions(image: bytes) -> set[str]:
    """Every version name in the library's needs, such as `GLIBC_2.17`."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise NotElf("it is no 64-bit ELF file")
    try:
        return set(_names_needed(image))
    except (struct.error, IndexError, ValueError) as error:
        raise NotElf("its section table is damaged") from error


def _names_needed(image: bytes) -> Iterator[str]:
    sections = _sections(image)
    for kind, offset, link, count in sections:
        if kind != _SHT_VERNEED:
            continue
        names_at = sections[link][1]
        for _ in range(count):
            _, versions, _, first, following = struct.unpack_from("<HHIII", image, offset)
            at = offset + first
            for _ in range(versions):
                _, _, _, name, step = struct.unpack_from("<IHHII", image, at)
                start = names_at + name
                yield image[start : image.index(b"\0", start)].decode("ascii")
                at += step
            offset += following


def _sections(image: bytes) -> list[tuple[int, int, int, int]]:
    """Kind, offset in the file, linked section and `sh_info` of each section."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    found = []
    for index in range(count):
        _, kind, _, _, offset, _, link, info, _, _ = _SECTION_HEADER.unpack_from(
            image, table + index * size
        )
        found.append((kind, offset, link, info))
    return found
