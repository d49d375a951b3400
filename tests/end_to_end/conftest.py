"""Kernels and programs under the real hook and a real scheduler, on a simulated device."""

from __future__ import annotations

from tests.kernel.conftest import shared

__all__ = ["shared"]
