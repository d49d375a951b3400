"""The job of Slurm in which this process runs, as Slurm's variables tell it."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from jupyter_gpushare.client.paths import RUNTIME_DIR

from .facts import JobFacts

_WHOLE = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")


def job_facts(environ: Mapping[str, str]) -> JobFacts:
    if not (job := environ.get("SLURM_JOB_ID", "")):
        return JobFacts()
    has_shard = bool(environ.get("SLURM_SHARDS_ON_NODE"))
    return JobFacts(
        id=job,
        node=environ.get("SLURMD_NODENAME") or socket.gethostname(),
        has_shard=has_shard,
        has_gpu=not has_shard and any(environ.get(name) for name in _WHOLE),
        is_led=bool(environ.get(RUNTIME_DIR)),
    )
