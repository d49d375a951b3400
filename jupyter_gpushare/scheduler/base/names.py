"""Texts that somebody else chose, made fit for a terminal, a log line and a token."""

from __future__ import annotations


def printable_line(text: str) -> str:
    """One line without control characters: a name must not be able to command a terminal."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def cut(text: str, bytes_max: int) -> str:
    """At most so many bytes of UTF-8, whole characters only."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")
