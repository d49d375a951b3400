"""What `setup(c)` raises."""

from __future__ import annotations


class OptionError(ValueError):
    """An entry of `c.GPUShare` cannot be used; the message says why, and what to do."""
