"""Memory that a workload holds besides its own work, so that a hand-over has something to move:
numbers that count upwards, which are looked at in the end, part by part.

GPUSHARE_BALLAST_MIB says how much; without it there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

PART_WORDS = 16 << 20


def ballast_words() -> int:
    return int(os.environ.get("GPUSHARE_BALLAST_MIB", "0")) << 18


class Ballast:
    """`upwards(first, end)` makes an array on the device, `equal(a, b)` compares two."""

    def __init__(
        self, upwards: Callable[[int, int], Any], equal: Callable[[Any, Any], bool]
    ) -> None:
        self._upwards = upwards
        self._equal = equal
        words = ballast_words()
        self._parts = [
            (first, min(words, first + PART_WORDS)) for first in range(0, words, PART_WORDS)
        ]
        self._held = [upwards(*part) for part in self._parts]

    def intact(self) -> bool:
        """Whether every number is where it was."""
        return all(
            self._equal(held, self._upwards(*part))
            for held, part in zip(self._held, self._parts, strict=True)
        )


def torch_ballast() -> Ballast:
    import torch

    return Ballast(
        lambda first, end: torch.arange(first, end, dtype=torch.int32, device="cuda"), torch.equal
    )


def cupy_ballast() -> Ballast:
    import cupy

    return Ballast(
        lambda first, end: cupy.arange(first, end, dtype=cupy.int32),
        lambda a, b: bool((a == b).all()),
    )


def jax_ballast() -> Ballast:
    import jax.numpy as jnp

    return Ballast(
        lambda first, end: jnp.arange(first, end, dtype=jnp.int32),
        lambda a, b: bool(jnp.array_equal(a, b)),
    )


def numba_ballast() -> Ballast:
    import numpy
    from numba import cuda

    return Ballast(
        lambda first, end: cuda.to_device(numpy.arange(first, end, dtype=numpy.int32)),
        lambda a, b: bool(numpy.array_equal(a.copy_to_host(), b.copy_to_host())),
    )
