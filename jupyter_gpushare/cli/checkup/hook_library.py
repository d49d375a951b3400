"""What the doctor says of the hook's library: it may come from elsewhere than the package. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpushare.kernel.elf_versions import numbers

from .facts import Facts
from .finding import Finding, ok, problem

_API_VERSION = 1
_ANOTHER_IMAGE = "Use a newer image; until then kernels run without sharing the GPU."


def check_library(facts: Facts) -> Iterator[Finding]:
    """Where programs cannot load it, the next check says so."""
    library = facts.library
    if library.missing:
        what, _, remedy = library.missing.partition(". ")
        yield problem("library", f"{what}.", remedy)
        return
    if _why_not_here(facts) is not None:
        return
    if library.loader_says:
        yield problem(
            "library",
            f"The dynamic loader refuses {library.path}: {library.loader_says}",
            "Reinstall jupyter-gpushare from a wheel for this platform.",
        )
    elif library.api_version is None:
        yield problem(
            "library",
            f"A program that preloads {library.path} does not find the hook's functions.",
            "Name the right library in GPUSHARE_LIBRARY, or unset it and reinstall "
            "jupyter-gpushare.",
        )
    elif library.api_version != _API_VERSION:
        yield problem(
            "library",
            f"{library.path} has interface {library.api_version}, and this package needs "
            f"{_API_VERSION}.",
            "Install jupyter-gpushare in this image in the version that the machine has."
            if _is_the_machines(facts)
            else "Unset GPUSHARE_LIBRARY, or install the library of this version.",
        )
    else:
        yield ok("library", f"{library.path} can be preloaded.")


def check_symbol_versions(facts: Facts) -> Iterator[Finding]:
    library = facts.library
    if library.missing:
        return
    if (wrong := _why_not_here(facts)) is not None:
        yield wrong
        return
    needs = library.needs_glibc or "no particular version"
    yield ok("symbol-versions", f"It needs glibc {needs}; this system has {library.has_glibc}.")


def _is_the_machines(facts: Facts) -> bool:
    return facts.library.is_mounted and bool(facts.place.container)


def _why_not_here(facts: Facts) -> Finding | None:
    """Musl, another processor, or a C library that is too old."""
    library = facts.library
    if library.unreadable:
        return problem(
            "symbol-versions",
            f"The symbol versions of {library.path} cannot be read, because {library.unreadable}.",
            "Reinstall jupyter-gpushare.",
        )
    if not library.has_glibc:
        return problem(
            "symbol-versions",
            f"The C library here is not glibc, and {library.path} needs glibc.",
            "Use a distribution or an image with glibc, such as Debian's (Alpine has musl).",
        )
    if not library.is_for_this_processor:
        return problem(
            "symbol-versions",
            f"{library.path} is for another kind of processor than this Python.",
            "Use an image for the machine's own kind of processor."
            if _is_the_machines(facts)
            else "Install the wheel for this platform.",
        )
    if numbers(library.needs_glibc) > numbers(library.has_glibc):
        return problem(
            "symbol-versions",
            f"The library needs glibc {library.needs_glibc}; this system has {library.has_glibc}.",
            _ANOTHER_IMAGE
            if _is_the_machines(facts)
            else "Install the wheel for this platform, or build from source here.",
        )
    return None
