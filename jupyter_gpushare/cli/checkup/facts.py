"""What the doctor has seen, before anybody judges it. Values only.

A fact that could not be learned is empty (or None); findings.py says nothing about it, or says
that it is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jupyter_gpushare.kubelet.pods import NodeDevices

DOCKER, KUBERNETES, APPTAINER = "docker", "kubernetes", "apptainer"
"""Kinds of containers; the first stands for all engines on one machine, such as podman."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFacts:
    """The hook's library, and what the dynamic loader makes of it."""

    path: str = ""
    missing: str = ""
    """Why there is no usable file, with what to do."""
    unreadable: str = ""
    """Why its symbol versions cannot be told."""
    needs_glibc: str = ""
    has_glibc: str = ""
    loader_says: str = ""
    """What the loader printed when a program was started with the library."""
    api_version: int | None = None
    version: str = ""
    """What the library answered in that program; empty for one that does not tell."""
    is_for_this_processor: bool = True
    is_mounted: bool = False
    """It is named in GPUSHARE_LIBRARY, and not this package's: in a container, the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file or directory by its own entry, symbolic links not followed."""

    path: str
    exists: bool = False
    uid: int = -1
    owner: str = ""
    mode: int = 0
    is_directory: bool = False
    is_socket: bool = False
    is_link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """The runtime directory and its sockets, as this user's environment leads to them."""

    directory: FileFacts
    sockets: tuple[FileFacts, ...] = ()
    own_uid: int = -1
    trusted_uids: frozenset[int] = frozenset()
    others: tuple[FileFacts, ...] = ()
    """Sockets of further schedulers that listen on this machine."""
    idle_others: frozenset[str] = frozenset()
    """Those among them whose schedulers say that they have no notebook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFacts:
    """What the scheduler answered, or why it did not."""

    status: dict[str, Any] | None = None
    problem: str = ""
    untrusted: bool = False
    own_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JupyterFacts:
    """How Jupyter servers of this environment start kernels."""

    has_server: bool = False
    provisioners: frozenset[str] = frozenset()
    extension_enabled: bool | None = None
    default_provisioner: str = ""
    """As the configuration files say; empty where they do not."""
    default_by_environment: str = ""
    own_provisioner_kernels: tuple[tuple[str, str], ...] = ()
    """Kernelspecs that name another provisioner: kernel, provisioner."""
    gateway_url: str = ""
    unreadable: str = ""
    switched_off: str = ""
    """In a sentence: why kernels do not share the GPU by somebody's will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device as NVML tells it."""

    uuid: str
    name: str
    bytes_total: int
    bytes_used: int
    compute_mode: str = "default"
    pids: tuple[int, ...] = ()
    """Processes with compute contexts, as numbered in NVML's own pid namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginFacts:
    """What the environment of a process says of where it comes from."""

    user: str = ""
    """The JupyterHub user whose server has started it."""
    is_kernels: bool = False
    """It is a kernel, or was started by one."""
    is_tenants: bool = False
    is_switched_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The NVIDIA driver, its devices, and MPS."""

    nvml_problem: str = ""
    driver_version: str = ""
    cuda_version: int = 0
    """As cuDriverGetVersion: 1000 times the major plus 10 times the minor version."""
    devices: tuple[DeviceFacts, ...] = ()
    mps: str = ""
    """By what MPS was recognised."""
    names_of_pids: dict[int, str] = field(default_factory=dict)
    origins: dict[int, OriginFacts] = field(default_factory=dict)
    """Of those processes that we may look into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFacts:
    """The tightest memory limit of the groups that this process is in."""

    path: str = ""
    version: int = 0
    bytes_max: int | None = None
    bytes_used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFacts:
    """Whether JupyterHub started this server, and who else it started under the same uid."""

    user: str = ""
    uid: int = -1
    other_users: frozenset[str] = frozenset()
    address: str = ""
    """Of the hub's API, where it was asked."""
    unreachable: str = ""
    """Why it does not answer there."""
    clock_ahead_s: float | None = None
    """This machine's clock, compared with its."""
    version: str = ""
    """Of jupyter-gpushare where the hub runs, as setup(c) has told the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The job of Slurm in which this process runs."""

    id: str = ""
    node: str = ""
    has_shard: bool = False
    has_gpu: bool = False
    """A whole one, or several."""
    is_led: bool = False
    """Its environment says where a scheduler is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """The container in which this process runs, as it shows from inside."""

    container: str = ""
    """DOCKER, KUBERNETES or APPTAINER; empty outside of containers."""
    is_led: bool = False
    """Its environment says where a scheduler is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the kubelet says of this node's devices, where we are on a node of Kubernetes and may
    ask it."""

    socket: str = ""
    """Where it was asked; empty elsewhere."""
    problem: str = ""
    """Why it could not be asked: a sentence, and what to do."""
    devices: NodeDevices = field(default_factory=NodeDevices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it."""

    library: LibraryFacts
    runtime: RuntimeFacts
    scheduler: SchedulerFacts
    jupyter: JupyterFacts
    machine: MachineFacts
    cgroup: CgroupFacts
    hub: HubFacts
    job: JobFacts = JobFacts()
    node: NodeFacts = NodeFacts()
    place: PlaceFacts = PlaceFacts()
