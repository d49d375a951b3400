"""`c.GPUShare` in jupyterhub_config.py: what an administrator may choose, checked once."""

from __future__ import annotations

import difflib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traitlets import Bool, Dict, Enum, Instance, Integer, List, Set, TraitError, Unicode, Union
from traitlets.config import Config, Configurable

from jupyter_gpushare.core.configuration.values import check_together
from jupyter_gpushare.core.settings import SettingsError

from .errors import OptionError as OptionError
from .places import LED_BY_THE_NODE, PLACES, SCHEDULERS_ELSEWHERE, THIS_MACHINE

SECTION = "GPUShare"
ROOTS_RUNTIME_DIR = Path("/run/jupyter-gpushare")
ROOTS_LIBRARY_DIR = Path("/var/lib/jupyter-gpushare")
_OWN_LIBRARY_DIR = ".local/share/jupyter-gpushare"
ROOTS_VIEW_DIR = Path("/var/lib/jupyter-gpushare-view")
"""Not within the other: containers see that one."""
_OWN_VIEW_DIR = ".local/share/jupyter-gpushare-view"
VIEW_PORT = 10150
_CHECK_TIMEOUT_S = 60
_WHERE = {
    "slurm": "/etc/jupyter/jupyter_gpushare_config.py or the systemd unit of the nodes",
    "kubernetes": "the values of the chart (docs/kubernetes.md)",
}
"""What a scheduler that a node starts itself is configured by."""


class GPUShare(Configurable):
    """How a JupyterHub shares its GPUs. The defaults suit a hub of one machine."""

    enabled = Bool(True, help="False switches GPU sharing off for all servers of the hub.").tag(
        config=True, expects="Give True or False."
    )
    platform = Enum(
        PLACES,
        default_value=THIS_MACHINE,
        help="Where the servers run: as processes of the hub's machine (`machine`), in containers "
        "there (`docker`), in jobs of Slurm (`slurm`), or in pods of Kubernetes (`kubernetes`).",
    ).tag(config=True, expects=f"Use one of: {', '.join(PLACES)}.")
    settings = Dict(
        key_trait=Unicode(),
        help="Settings of the scheduler by name, as docs/settings.md lists them.",
    ).tag(config=True, expects='Give a dictionary, such as {"quantum_s": 5}.')
    runtime_dir = Union(
        [Unicode(), Instance(Path)],
        help="Where the scheduler's sockets are. If it is empty: /run/jupyter-gpushare for a hub "
        "that root runs, else /tmp/jupyter-gpushare-UID.",
    ).tag(config=True, expects='Give a path, such as "/run/jupyter-gpushare".')
    library_dir = Union(
        [Unicode(), Instance(Path)],
        help="Where the hub keeps a copy of the hook's library for containers. If it is empty: "
        "/var/lib/jupyter-gpushare for a hub that root runs, else ~/.local/share/jupyter-gpushare.",
    ).tag(config=True, expects='Give a path, such as "/var/lib/jupyter-gpushare".')
    without_hub = Enum(
        ["unshared", "wait"],
        default_value="unshared",
        help="What becomes of a kernel that starts while the hub cannot be reached: it starts and "
        "does not share the GPU, and its notebook says so; or it waits for the hub, five minutes "
        "at most.",
    ).tag(config=True, expects='Give "unshared" or "wait".')
    scheduler_args = List(
        Unicode(), help="More flags of `jupyter gpushare scheduler`, such as `--debug`."
    ).tag(config=True, expects='Give a list of flags, such as ["--debug"].')
    scheduler_environment = Dict(
        key_trait=Unicode(), help="More variables for the scheduler, such as CUDA_VISIBLE_DEVICES."
    ).tag(config=True, expects='Give a dictionary, such as {"CUDA_VISIBLE_DEVICES": "0"}.')
    view = Bool(
        False,
        help="True adds a page that shows all nodes, as a service of the hub (docs/view.md).",
    ).tag(config=True, expects="Give True or False.")
    view_port = Integer(
        VIEW_PORT, min=1, max=65535, help="The port of this machine that the view listens at."
    ).tag(config=True, expects="Give a number from 1 to 65535.")
    view_dir = Union(
        [Unicode(), Instance(Path)],
        help="Where the view keeps the tokens of nodes and the use of GPUs. If it is empty: "
        "/var/lib/jupyter-gpushare-view for a hub that root runs, else "
        "~/.local/share/jupyter-gpushare-view.",
    ).tag(config=True, expects='Give a path, such as "/var/lib/jupyter-gpushare-view".')
    view_args = List(Unicode(), help="More flags of `jupyter gpushare view`.").tag(
        config=True, expects='Give a list of flags, such as ["--metrics-token-file=/etc/token"].'
    )
    admin_users = Set(
        Unicode(),
        default_value=None,
        allow_none=True,
        help="Who may act on everybody's kernels. By default: the hub's admin_users.",
    ).tag(config=True, expects='Give a list of user names, such as ["ann"].')
    admin_groups = Set(
        Unicode(), help="Groups of the hub whose members may act on everybody's kernels."
    ).tag(config=True, expects='Give a list of group names, such as ["staff"].')

    @property
    def directory(self) -> Path:
        if str(self.runtime_dir):
            return Path(self.runtime_dir)
        uid = os.getuid()
        return ROOTS_RUNTIME_DIR if uid == 0 else Path("/tmp") / f"jupyter-gpushare-{uid}"

    @property
    def starts_scheduler(self) -> bool:
        """Whether the hub does: its own machine's. Elsewhere each node has one already."""
        return self.platform not in SCHEDULERS_ELSEWHERE

    @property
    def names_directory(self) -> bool:
        """Whether the servers hear from us where the sockets are; else their node says so."""
        return self.platform not in LED_BY_THE_NODE

    @property
    def kept_library_dir(self) -> Path:
        if str(self.library_dir):
            return Path(self.library_dir)
        return ROOTS_LIBRARY_DIR if os.getuid() == 0 else Path.home() / _OWN_LIBRARY_DIR

    @property
    def kept_view_dir(self) -> Path:
        if str(self.view_dir):
            return Path(self.view_dir)
        return ROOTS_VIEW_DIR if os.getuid() == 0 else Path.home() / _OWN_VIEW_DIR

    @property
    def flags(self) -> list[str]:
        """All flags of the scheduler that the administrator has chosen."""
        return [f"--{name}={value}" for name, value in self.settings.items()] + self.scheduler_args


def options_from(c: Config) -> GPUShare:
    """The section as a value; raises OptionError."""
    section = c.get(SECTION, {})
    names = sorted(GPUShare.class_own_traits(config=True))
    for name in section:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Use one of: {', '.join(names)}."
            raise OptionError(f"There is no c.GPUShare.{name}. {hint}")
    for name, value in section.items():
        _check(name, value)
    options = GPUShare(config=c)
    for name, path in (
        ("runtime_dir", options.directory),
        ("library_dir", options.kept_library_dir),
        ("view_dir", options.kept_view_dir),
    ):
        if not path.is_absolute():
            raise OptionError(
                f"c.GPUShare.{name} is {str(path)!r}, which is not an absolute path. Give a path "
                f"that starts with a slash."
            )
    _check_for_a_scheduler(options)
    try:
        check_together(options.settings)
    except SettingsError as error:
        raise OptionError(f"c.GPUShare.settings: {error}") from error
    return options


def _check(name: str, value: Any) -> None:
    """traitlets names neither `c.` nor what to do, and takes a text for a list of one."""
    trait = GPUShare.class_own_traits()[name]
    is_list = isinstance(trait, List | Set)
    try:
        if is_list and isinstance(value, str):
            raise TraitError
        GPUShare(config=Config({SECTION: {name: value}}))
    except TraitError as error:
        expects = trait.metadata["expects"]
        raise OptionError(f"c.GPUShare.{name} cannot be {value!r}. {expects}") from error


def _check_for_a_scheduler(options: GPUShare) -> None:
    """What is meant for the hub's scheduler would change nothing where the hub starts none."""
    if options.starts_scheduler:
        return
    names = ["settings", "scheduler_args", "scheduler_environment"]
    for name in names if options.names_directory else [*names, "runtime_dir"]:
        if getattr(options, name):
            raise OptionError(
                f"c.GPUShare.{name} is for a scheduler that the hub starts, and with platform "
                f"{options.platform!r} each node starts its own. Remove it here, and put it into "
                f"{_WHERE[options.platform]}."
            )


def check_flags(command: Sequence[str], flags: Sequence[str]) -> None:
    """Raises OptionError with what the scheduler itself says of these flags."""
    done = subprocess.run(
        [*command, "--check-config", *flags],
        capture_output=True,
        text=True,
        timeout=_CHECK_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
        sentence = said.removeprefix("jupyter-gpushare: ")
        raise OptionError(f"c.GPUShare.scheduler_args: {sentence}")


class ReadSection(Config):
    """`c.GPUShare` once setup(c) has read it: a later entry would change nothing, so it is refused.

    A copy, such as the hub makes, may be changed as any other."""

    _is_read = False

    def __setitem__(self, key: str, value: Any) -> None:
        if self._is_read:
            raise OptionError(
                f"c.GPUShare.{key} is set after setup(c), which has read it already. Move "
                f"setup(c) to the end of the file."
            )
        super().__setitem__(key, value)

    def __getitem__(self, key: str) -> Any:
        """What is not there would be made, to be added to."""
        if self._is_read and key not in self:
            self[key] = None
        return super().__getitem__(key)

    @classmethod
    def of(cls, section: Config) -> ReadSection:
        made = cls(section)
        dict.__setattr__(made, "_is_read", True)
        return made
