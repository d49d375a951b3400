"""Servers are jobs of Slurm (batchspawner), on nodes that have a scheduler each.

slurmctld places the servers, by shards of a GPU and by memory; the node's scheduler gives the
turns. Accounts are real there, so an owner is an account and no hub token is asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from traitlets import TraitError
from traitlets.config import Config

from jupyter_gpushare.client.paths import RUNTIME_DIR, SCHEDULER_UID

from ..spawners import SPAWNER, add_environment

if TYPE_CHECKING:
    from ..options import GPUShare

NODES_RUNTIME_DIR = "/run/jupyter-gpushare"
"""Which deploy/systemd/jupyter-gpushare.service makes."""
NODES_SCHEDULER_UID = "0"
ONE_SHARD = "shard:1"
SLURM, BATCH = "SlurmSpawner", "BatchSpawnerBase"
_MIB = 1 << 20
_OPTIONS_OF = {"req_gres": ("--gres", "--gpus", "-G"), "req_memory": ("--mem",)}
"""In `req_options`, sbatch's own, administrators ask for the same."""


def add_slurm(c: Config, options: GPUShare) -> None:
    """What a job asks for, and where a server finds its node's scheduler. What the administrator
    has set, for SlurmSpawner or for all batch systems, stays."""
    directory = str(options.runtime_dir) or NODES_RUNTIME_DIR
    add_environment(c, {RUNTIME_DIR: directory, SCHEDULER_UID: NODES_SCHEDULER_UID})
    _ask(c, "req_gres", ONE_SHARD)
    if limit := _memory_limit(c):
        _ask(c, "req_memory", f"{math.ceil(limit / _MIB)}M")


def _ask(c: Config, name: str, value: str) -> None:
    """Ours for this entry, where there is none and sbatch is not asked in another way."""
    options = str(_set_in(c, "req_options", SLURM, BATCH) or "").split()
    asked = any(option.startswith(_OPTIONS_OF[name]) for option in options)
    if not asked and _set_in(c, name, SLURM, BATCH) is None:
        c[SLURM][name] = value


def _memory_limit(c: Config) -> int:
    """The `mem_limit` that the hub gives its servers; 0 where it gives none, or one for each.

    Only a job that asks Slurm for it has it: parked memory counts there."""
    limit = _set_in(c, "mem_limit", SLURM, BATCH, SPAWNER)
    if limit is None or callable(limit):
        return 0
    from jupyterhub.traitlets import ByteSpecification  # the hub has it; the scheduler need not

    try:
        return int(ByteSpecification().validate(None, limit) or 0)
    except TraitError:  # the hub says so itself, and does not start
        return 0


def _set_in(c: Config, name: str, *sections: str) -> Any:
    """What the first of these sections has been given that has the entry; None where none has."""
    return next((c[each][name] for each in sections if each in c and name in c[each]), None)
