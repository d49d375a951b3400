"""JAX: a jitted step in a loop."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy

from tests.gpu.workloads.ballast import jax_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


def run(steps: int) -> str:
    matrix = jax.random.uniform(jax.random.PRNGKey(3), (512, 512), dtype=jnp.float32)
    step = jax.jit(lambda m: jnp.tanh(m @ m) * 0.5 + 0.1)
    for _ in range(steps):
        matrix = step(matrix)
    return digest(numpy.asarray(matrix))


if __name__ == "__main__":
    steps = steps_from_argv(5000)
    ballast = jax_ballast()
    result = run(steps)
    report(workload="jax_work", steps=steps, digest=result, ballast_intact=ballast.intact())
