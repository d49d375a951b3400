"""What the facts mean in a job of Slurm. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts, JobFacts
from .finding import Finding, ok, warning


def who_starts_it(job: JobFacts) -> str:
    """What to do where a job's node has no scheduler; empty elsewhere."""
    if not job.has_shard:
        return ""
    return (
        f"Ask your administrator to run `systemctl start jupyter-gpushare` on the node {job.node}."
    )


def who_updates_it(job: JobFacts) -> str:
    """What to do where the scheduler of a job's node has another version; empty elsewhere."""
    if not job.has_shard:
        return ""
    return f"Ask your administrator to install one version for jobs and for the node {job.node}."


def check_job(facts: Facts) -> Iterator[Finding]:
    job = facts.job
    if not job.id:
        return
    if not (job.has_shard or job.has_gpu):
        yield warning(
            "slurm",
            f"The Slurm job {job.id} has no GPU and no shard of one.",
            "Ask for one with --gres=shard:1; a batch_script of JupyterHub's SlurmSpawner needs "
            "the line #SBATCH --gres={{gres}}.",
        )
    elif job.has_shard and not job.is_led:
        yield warning(
            "slurm",
            f"Nothing tells the Slurm job {job.id} where the scheduler of the node {job.node} is.",
            "Set GPUSHARE_RUNTIME_DIR, or let slurm.conf name jupyter-gpushare's task prolog.",
        )
    else:
        what = "a shard of a GPU" if job.has_shard else "a whole GPU"
        yield ok("slurm", f"The Slurm job {job.id} has {what} on the node {job.node}.")
