"""What the facts mean: each finding is one sentence on what is so and one on what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jupyter_gpushare.core.configuration.checks import (
    NOTEBOOKS_REMEDY,
    notebooks_told,
    notebooks_with_shares,
)

from .clock import check_clock
from .facts import Facts, FileFacts
from .finding import Finding as Finding
from .finding import Level as Level
from .finding import ok as _ok
from .finding import problem as _problem
from .finding import warning as _warning
from .hook_library import check_library, check_symbol_versions
from .host_memory import check_host_memory
from .jobs import check_job
from .node import check_node
from .places import check_place, who_gives_a_gpu, who_starts_it
from .reports import check_reports
from .strangers import check_foreign_memory
from .versions import check_versions

PROVISIONER = "gpushare-provisioner"
_DISTRIBUTION_DEFAULT = "local-provisioner"
_CUDA_MIN = 12000
"""Older drivers lack functions that the hook's drain rests on being told of by name."""
_SCHEDULER = "`jupyter gpushare scheduler`"


Check = Callable[[Facts], Iterator[Finding]]


def findings(facts: Facts) -> list[Finding]:
    """All checks, in the order in which their causes depend on each other. Where somebody has
    switched sharing off, nothing that belongs to it is missing."""
    checks = CHECKS_WHEN_OFF if facts.jupyter.switched_off else CHECKS
    return [finding for check in checks for finding in check(facts)]


def exit_status(found: list[Finding]) -> int:
    """1 when something does not work."""
    return int(any(finding.level is Level.PROBLEM for finding in found))


# ---- the hook --------------------------------------------------------------------------------


def check_switch(facts: Facts) -> Iterator[Finding]:
    if why := facts.jupyter.switched_off:
        yield _ok("switch", f"{why} Kernels use the GPU like any other program.")


# ---- the scheduler ---------------------------------------------------------------------------


def check_runtime_directory(facts: Facts) -> Iterator[Finding]:
    runtime = facts.runtime
    directory = runtime.directory
    other = "Name another directory in GPUSHARE_RUNTIME_DIR, or ask your administrator."
    if not directory.exists:
        yield _warning(
            "runtime-directory",
            f"The runtime directory {directory.path} does not exist, so no scheduler has served "
            f"it yet.",
            who_starts_it(facts) or f"Start a notebook server, or {_SCHEDULER}.",
        )
    elif directory.is_link or not directory.is_directory:
        kind = "a symbolic link" if directory.is_link else "not a directory"
        yield _problem(
            "runtime-directory",
            f"The runtime directory {directory.path} is {kind}; another user may have put it "
            f"there.",
            other,
        )
    elif directory.uid not in runtime.trusted_uids:
        yield _problem(
            "runtime-directory",
            f"The runtime directory {directory.path} belongs to {directory.owner}, and not to "
            f"you, root or the account in GPUSHARE_SCHEDULER_UID.",
            other,
        )
    elif directory.mode & 0o022:
        yield _problem(
            "runtime-directory",
            f"Others may write to {directory.path} (mode {directory.mode:04o}).",
            f"Run `chmod go-w {directory.path}`.",
        )
    else:
        yield _ok(
            "runtime-directory",
            f"{directory.path} belongs to {directory.owner}, mode {directory.mode:04o}.",
        )


def check_sockets(facts: Facts) -> Iterator[Finding]:
    runtime = facts.runtime
    present = [socket for socket in runtime.sockets if socket.exists]
    bad = [s for s in present if not s.is_socket or s.uid not in runtime.trusted_uids]
    for socket in bad:
        yield _problem("sockets", _squatted(socket), f"Remove it, then start {_SCHEDULER}.")
    missing = [socket.path for socket in runtime.sockets if not socket.exists]
    if present and missing:
        yield _problem(
            "sockets",
            f"{' and '.join(missing)} is missing; the scheduler's other socket exists.",
            "Restart the scheduler.",
        )
    elif present and not bad:
        yield _ok("sockets", "Both sockets exist and belong to the right account.")


def _squatted(socket: FileFacts) -> str:
    if not socket.is_socket:
        return f"{socket.path} is not a socket, so kernels cannot reach the scheduler there."
    return f"{socket.path} belongs to {socket.owner} and not to the scheduler."


def check_scheduler(facts: Facts) -> Iterator[Finding]:
    scheduler = facts.scheduler
    if scheduler.status is None:
        what, _, remedy = scheduler.problem.partition(". ")
        somebody_elses = who_starts_it(facts)
        never_there = not facts.runtime.directory.exists and not somebody_elses
        if facts.jupyter.extension_enabled and never_there:
            yield _warning("scheduler", f"{what}.", "The next notebook server starts one.")
        else:
            starts = somebody_elses or remedy or f"Start {_SCHEDULER}."
            yield _problem("scheduler", f"{what}.", starts)
        return
    process = scheduler.status["scheduler"]
    yield _ok(
        "scheduler",
        f"Process {process['pid']} of {process['user']} answers on {process['runtime_dir']}.",
    )
    if scheduler.status["settings"]["turns"] == "off":
        yield _warning(
            "turns",
            "Turns are off, so all notebooks use the GPU at once.",
            "Run `jupyter gpushare set turns on` to take turns.",
        )
    if told := notebooks_told(notebooks_with_shares(scheduler.status["settings"])):
        yield _warning("shares", told, NOTEBOOKS_REMEDY)


def check_other_schedulers(facts: Facts) -> Iterator[Finding]:
    for other in facts.runtime.others:
        whose = f"Another scheduler of {other.owner or 'somebody'} listens on {other.path}"
        if other.path in facts.runtime.idle_others:
            yield _ok("other-schedulers", f"{whose}. It has no notebook, so it disturbs nobody.")
            continue
        yield _warning(
            "other-schedulers",
            f"{whose}, and the two schedulers do not know of each other's turns.",
            "Let one scheduler serve everybody (`--serve-all-users`), or give each its own "
            "devices (`--devices`).",
        )


# ---- Jupyter ---------------------------------------------------------------------------------


def check_provisioner(facts: Facts) -> Iterator[Finding]:
    jupyter = facts.jupyter
    if jupyter.unreadable:
        yield _warning(
            "configuration",
            f"A configuration file of the server cannot be read: {jupyter.unreadable}.",
            "Correct it. Until then the doctor does not know how it configures kernels.",
        )
    if PROVISIONER not in jupyter.provisioners:
        yield _problem(
            "provisioner",
            f"Jupyter does not find {PROVISIONER} among the kernel provisioners.",
            "Reinstall jupyter-gpushare into the environment of the Jupyter server.",
        )
        return
    named = jupyter.default_by_environment or jupyter.default_provisioner
    if named and named not in (PROVISIONER, _DISTRIBUTION_DEFAULT):
        yield _warning(
            "provisioner",
            f"The default provisioner here is {named}, so kernels do not use ours.",
            "Put GPUShareMixin before it, or remove that default.",
        )
    elif named != PROVISIONER and not jupyter.has_server:
        yield _warning(
            "provisioner",
            "There is no Jupyter server in this environment, so nothing makes our provisioner "
            "the default.",
            "Run `jupyter gpushare doctor` where the server is installed.",
        )
    elif named != PROVISIONER and not jupyter.extension_enabled:
        yield _problem(
            "provisioner",
            "The server extension is not enabled, so kernels start without sharing the GPU.",
            "Run `jupyter server extension enable jupyter_gpushare` and restart the server.",
        )
    else:
        how = "the configuration" if named == PROVISIONER else "the server extension"
        yield _ok("provisioner", f"New kernels share the GPU, by {how}.")
    if jupyter.default_by_environment == PROVISIONER:
        yield _warning(
            "provisioner",
            "JUPYTER_DEFAULT_PROVISIONER_NAME is set and hides every kernel from programs in "
            "environments without jupyter-gpushare.",
            "Unset it; the server extension sets the default for servers.",
        )


def check_kernelspecs(facts: Facts) -> Iterator[Finding]:
    for kernel, provisioner in facts.jupyter.own_provisioner_kernels:
        yield _warning(
            "kernelspecs",
            f"The kernel {kernel} names {provisioner} as its provisioner and does not share the "
            f"GPU.",
            f"Name {PROVISIONER} in its kernel.json, or put GPUShareMixin before {provisioner}.",
        )


def check_gateway(facts: Facts) -> Iterator[Finding]:
    if url := facts.jupyter.gateway_url:
        yield _warning(
            "gateway",
            f"Kernels of this server run behind the gateway {url}, so nothing here reaches them.",
            "Install jupyter-gpushare on the gateway's machine.",
        )


def check_shared_uid(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    if not hub.user:
        return
    if hub.other_users:
        names = ", ".join(sorted(hub.other_users))
        yield _warning(
            "shared-uid",
            f"The hub's users {hub.user} and {names} share uid {hub.uid}, so this machine cannot "
            f"protect the kernels of one from the others.",
            "Let the hub start servers under accounts of their own, or in containers.",
        )
    else:
        yield _ok("shared-uid", f"No other user of the hub is seen under uid {hub.uid}.")


def check_hub(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    if hub.unreachable:
        yield _problem(
            "hub",
            f"JupyterHub does not answer at {hub.address} from this machine: {hub.unreachable}.",
            "Let this machine reach that address, or set c.JupyterHub.hub_connect_url (on nodes of "
            "Kubernetes: hub.apiUrl of the chart) to one that it can reach.",
        )
    elif hub.address:
        yield _ok("hub", f"JupyterHub answers at {hub.address}.")


# ---- the machine -----------------------------------------------------------------------------


def check_driver(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine.nvml_problem:
        mismatch = "mismatch" in machine.nvml_problem.lower()
        yield _problem(
            "driver",
            f"The NVIDIA driver does not answer: {machine.nvml_problem}.",
            "It was updated while in use: reboot, or reload its kernel module."
            if mismatch
            else who_gives_a_gpu(
                facts, "Install the driver, or give this container access to the GPU."
            ),
        )
        return
    cuda = f"{machine.cuda_version // 1000}.{machine.cuda_version % 1000 // 10}"
    if machine.cuda_version < _CUDA_MIN:
        yield _warning(
            "driver",
            f"The driver {machine.driver_version} is for CUDA {cuda}; nobody has tried "
            f"jupyter-gpushare with it.",
            f"Install a driver for CUDA {_CUDA_MIN // 1000} or later.",
        )
    else:
        yield _ok("driver", f"NVIDIA driver {machine.driver_version} (CUDA {cuda}).")
    if not machine.devices:
        yield _problem(
            "driver",
            "NVML lists no device.",
            who_gives_a_gpu(facts, "Give this machine or container access to a GPU."),
        )


def check_sharing_modes(facts: Facts) -> Iterator[Finding]:
    if facts.machine.mps:
        yield _warning(
            "mps",
            f"NVIDIA MPS is on ({facts.machine.mps}): an error of one process may end all others, "
            f"and the work of one may delay the turn of another.",
            "Stop it with `echo quit | nvidia-cuda-mps-control`; turns do not need it.",
        )
    for device in facts.machine.devices:
        if device.compute_mode != "default":
            yield _problem(
                "compute-mode",
                f"{device.name} is in {device.compute_mode} compute mode, so a second process "
                f"cannot open it.",
                f"Run `nvidia-smi -i {device.uuid} -c DEFAULT` as root.",
            )


def check_paused(facts: Facts) -> Iterator[Finding]:
    status = facts.scheduler.status
    for device in status["devices"] if status else ():
        mode = device.get("mode", "open")
        if mode != "open":
            yield _warning(
                "paused",
                f"An administrator has {mode} {device['name']}, so no notebook gets it.",
                "When it is to go on, let them run `jupyter gpushare resume`.",
            )


def check_frozen(facts: Facts) -> Iterator[Finding]:
    status = facts.scheduler.status
    if status is None:
        return
    holders = [each for device in status["devices"] for each in device.get("holders", ())]
    holding = {each["tenant"] for each in holders if each.get("frozen")}
    for tenant in status["tenants"]:
        if any(client.get("frozen") for client in tenant["clients"]):
            holds = tenant["id"] in holding
            consequence = "keeps the GPU from others" if holds else "gets no turn until it goes on"
            yield _warning(
                "frozen",
                f"{tenant['name']} was stopped from outside (SIGSTOP, docker pause, scontrol "
                f"suspend) and {consequence}.",
                "Let it go on (SIGCONT, docker unpause, scontrol resume), or shut it down.",
            )


CHECKS_WHEN_OFF: tuple[Check, ...] = (check_switch, check_driver, check_node)
CHECKS: tuple[Check, ...] = (
    check_library,
    check_symbol_versions,
    check_job,
    check_place,
    check_runtime_directory,
    check_sockets,
    check_scheduler,
    check_versions,
    check_other_schedulers,
    check_provisioner,
    check_kernelspecs,
    check_gateway,
    check_shared_uid,
    check_hub,
    check_clock,
    check_driver,
    check_sharing_modes,
    check_foreign_memory,
    check_paused,
    check_frozen,
    check_host_memory,
    check_node,
    check_reports,
)
