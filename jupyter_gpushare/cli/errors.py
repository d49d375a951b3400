"""Errors of the command line itself."""

from __future__ import annotations


class UsageError(Exception):
    """The arguments make no sense; the message says why and what would."""
