"""The version of the package: what every module may know of it."""

from __future__ import annotations

__version__ = "0.1.0"
