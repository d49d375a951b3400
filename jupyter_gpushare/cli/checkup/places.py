"""What the facts mean in a container, and who mends what there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpushare.client.paths import TENANTS_INSIDE
from jupyter_gpushare.kubelet.seats import RESOURCE

from .facts import APPTAINER, DOCKER, KUBERNETES, Facts
from .finding import Finding, ok, problem, warning
from .jobs import who_starts_it as who_starts_it_for_the_job

_CHECK = "container"
_PLATFORM = 'c.GPUShare.platform = "{}"'


def check_place(facts: Facts) -> Iterator[Finding]:
    """Of a server in a container: does it have what its machine's scheduler gives it?"""
    place, directory = facts.place, facts.runtime.directory
    if not place.container or facts.node.socket:
        return
    if place.is_led and not directory.exists and _is_given_one(facts):
        yield problem(
            _CHECK,
            f"Nothing is mounted at {directory.path} in this container, so its kernels reach no "
            f"scheduler.",
            _who_mounts_it(facts),
        )
    elif place.is_led and directory.exists:
        yield ok(_CHECK, f"The directory {directory.path} of its scheduler is in this container.")
    elif place.is_led:
        return  # it may start a scheduler there by itself
    elif place.container == KUBERNETES and facts.hub.user and facts.machine.devices:
        yield warning(
            _CHECK,
            "This pod has a GPU and no seat, so its kernels take turns with nobody outside of it.",
            f"If others share this GPU, add {RESOURCE}: 1 to the container's resource limits, or "
            f"set {_PLATFORM.format(KUBERNETES)} before setup(c) on the hub.",
        )
    elif place.container == DOCKER and facts.hub.user:
        yield warning(
            _CHECK,
            "The hub has told this container of no scheduler, so its kernels take turns with "
            "nobody outside of it.",
            f"Set {_PLATFORM.format(DOCKER)} before setup(c) on the hub, and restart this server.",
        )


def who_starts_it(facts: Facts) -> str:
    """What to do where there is no scheduler and its user is not to start one; else empty."""
    if for_the_job := who_starts_it_for_the_job(facts.job):
        return for_the_job
    if facts.node.socket:
        return "Look into the log of the scheduler's container of this pod."
    if facts.place.container == KUBERNETES and facts.place.is_led:
        return (
            "Ask your administrator to look at the gpushare pod of this node (`kubectl get pods "
            "-o wide -l app.kubernetes.io/name=gpushare`)."
        )
    if facts.hub.user and facts.place.is_led and not facts.job.id:
        return (
            "Ask your administrator to look at the hub's service `gpushare`, which is the "
            "scheduler, in the hub's log."
        )
    return ""


def who_gives_a_gpu(facts: Facts, elsewhere: str) -> str:
    if facts.place.container == KUBERNETES and facts.node.socket:
        return (
            "Let NVIDIA's runtime add the GPU to this container: nvml in the chart's values says "
            "how."
        )
    if facts.place.container == KUBERNETES:
        return "Add nvidia.com/gpu: 1 to the resource limits of this container."
    if facts.place.container == APPTAINER:
        return "Start the container with `apptainer exec --nv`."
    return elsewhere


def _is_given_one(facts: Facts) -> bool:
    """Who has named the directory is a hub, Slurm, or whoever gave a seat."""
    by_others = bool(facts.hub.user or facts.job.id)
    return by_others or facts.runtime.directory.path == TENANTS_INSIDE


def _who_mounts_it(facts: Facts) -> str:
    if facts.place.container == APPTAINER:
        return f"Start the container with `--bind {facts.runtime.directory.path}`."
    if facts.place.container == KUBERNETES:
        return (
            f"Ask for a seat ({RESOURCE}: 1) in the container's resource limits, and let no "
            f"variable of the pod name GPUSHARE_RUNTIME_DIR."
        )
    return (
        f"Set {_PLATFORM.format(DOCKER)} before setup(c) on the hub, which mounts it at "
        f"{TENANTS_INSIDE}, and restart this server."
    )
