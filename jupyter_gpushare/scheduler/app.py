"""`jupyter gpushare scheduler`: configuration files and flags, logging, and a clean end."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_core.paths import ENV_CONFIG_PATH, SYSTEM_CONFIG_PATH, jupyter_config_path
from traitlets import Bool, Float, Integer, TraitError, Unicode, default
from traitlets.config import Application
from traitlets.config.loader import KVArgParseConfigLoader

from jupyter_gpushare.client.paths import runtime_dir
from jupyter_gpushare.core.setting_values import suggestion
from jupyter_gpushare.core.settings import SettingsError
from jupyter_gpushare.version import __version__

from .base.errors import StartError
from .base.private_file import PrivateLog
from .config import ALIASES, SettingsConfig
from .devices.visible import DeviceName, Served, asked_for, visible
from .parent import watch_parent
from .process import ProcessOptions, SchedulerProcess
from .runtime_dir import LOG_FILE, RuntimeDir

log = logging.getLogger(__name__)

CONFIG_NAME = "jupyter_gpushare_config"
_LOG_BYTES_MAX = 10 << 20
_LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SchedulerApp(Application):
    """One scheduler for the devices of this machine."""

    name = "jupyter-gpushare-scheduler"
    description = "Serves the turns on this machine's GPUs until it is stopped."
    version = __version__
    classes = [SettingsConfig]  # noqa: RUF012
    aliases = {  # noqa: RUF012
        **ALIASES,
        "config": "SchedulerApp.config_file",
        "hub-pid": "SchedulerApp.hub_pid",
        "idle-exit-s": "SchedulerApp.idle_exit_s",
        "journal": "SchedulerApp.journal_file",
        "log-level": "SchedulerApp.log_level",
        "ready-fd": "SchedulerApp.ready_fd",
        "runtime-dir": "SchedulerApp.runtime_dir",
    }
    flags = {  # noqa: RUF012
        "check": (
            {"SchedulerApp": {"check": True}},
            "Check the core's invariants after each event.",
        ),
        "check-config": (
            {"SchedulerApp": {"only_checks": True}},
            "Read flags and files, say what is wrong with them, and end.",
        ),
        "debug": (
            {"SchedulerApp": {"log_level": "DEBUG"}},
            "Log each event and what follows from it.",
        ),
        "hub": (
            {"SchedulerApp": {"hub": True}},
            "Ask the JupyterHub that started this process whose a kernel is.",
        ),
        "log-to-file": (
            {"SchedulerApp": {"log_to_file": True}},
            f"Log to {LOG_FILE} in the runtime directory instead of the terminal.",
        ),
        "serve-all-users": (
            {"SchedulerApp": {"serves_all": True}},
            "Serve every user of the machine, not only the one who starts it.",
        ),
    }

    config_file = Unicode("", help="A configuration file to read besides Jupyter's.").tag(
        config=True
    )
    runtime_dir = Unicode(
        "", help="Where the sockets are; as the environment says where this is empty."
    ).tag(config=True)
    serves_all = Bool(False, help="Serve every user of the machine.").tag(config=True)
    hub = Bool(False, help="Owners are who a JupyterHub says.").tag(config=True)
    hub_pid = Integer(
        0, help="The process that started this one, which ends with it; 0: whoever that is."
    ).tag(config=True)
    idle_exit_s = Float(
        0.0, min=0.0, help="End after so many seconds without any tenant; 0: never."
    ).tag(config=True)
    journal_file = Unicode("", help="Write every event and command to this file.").tag(config=True)
    check = Bool(False, help="Check the core's invariants after each event.").tag(config=True)
    only_checks = Bool(False, help="Only read the configuration, and end.").tag(config=True)
    log_to_file = Bool(False, help="Log to a file in the runtime directory.").tag(config=True)
    ready_fd = Integer(
        -1, help="Write a line to this descriptor, and close it, once the sockets answer."
    ).tag(config=True)

    @default("log_level")
    def _log_level_default(self) -> int:
        return logging.INFO

    exit_status = os.EX_OK
    raise_config_file_errors = True

    def initialize(self, argv: Sequence[str] | None = None) -> None:
        """Flags win over files."""
        self.parse_command_line(list(argv) if argv is not None else None)
        if self.extra_args:
            raise StartError(
                f"The scheduler takes no argument {self.extra_args[0]!r}. See `scheduler --help`."
            )
        flags = self.cli_config
        refuse_unknown(flags, "--", self.classes)
        for folder in reversed(_config_folders()):
            self._read_config(Path(folder) / CONFIG_NAME)
        if self.config_file:
            path = Path(self.config_file).absolute()
            if not path.is_file():
                raise StartError(f"There is no configuration file {path}. Correct --config.")
            self._read_config(path)
        self.update_config(flags)
        refuse_unknown({name: self.config[name] for name in _OURS}, "c.", self.classes)

    def _create_loader(self, argv: Any, aliases: Any, flags: Any, classes: Any) -> Any:
        """traitlets would warn of an unknown flag, and go on without it."""
        return _StrictLoader(argv, aliases, flags, classes=classes, log=self.log)

    def _read_config(self, path: Path) -> None:
        """`path` with .py and .json, whichever are there."""
        try:
            self.load_config_file(path.stem, path=str(path.parent))
        except Exception as error:  # a configuration file is a program and may raise anything
            raise StartError(
                f"The configuration file {path} cannot be read: {error!r}. Correct it."
            ) from error

    def start(self) -> None:
        """Run until SIGTERM, SIGINT or idleness."""
        table = SettingsConfig(parent=self)
        path = Path(self.runtime_dir or runtime_dir()).absolute()
        try:
            settings, at_start = table.settings(), table.start_settings()
        except SettingsError as error:
            raise StartError(str(error)) from error
        if self.only_checks:
            return
        directory = RuntimeDir(path, open_to_all=self.serves_all, version=__version__)
        self._start_logging(directory.path)
        options = ProcessOptions(
            settings=settings,
            choose_devices=Chooser(at_start.devices, os.environ.get("CUDA_VISIBLE_DEVICES")),
            serves_all=self.serves_all,
            hub=self.hub,
            idle_exit_s=self.idle_exit_s or None,
            journal=Path(self.journal_file) if self.journal_file else None,
            check=self.check,
            cap_bytes=at_start.memory_cap_bytes,
            probe_period_s=at_start.probe_period_s,
            message_deadline_s=at_start.message_deadline_s,
        )
        log.info("effective values: %s", options)
        self.exit_status = asyncio.run(self._serve(directory, options))

    async def _serve(self, directory: RuntimeDir, options: ProcessOptions) -> int:
        try:
            process = SchedulerProcess(directory, options)
        except StartError:
            directory.release(clients_left=directory.had_predecessor)
            raise
        loop = asyncio.get_running_loop()
        for number in _ENDING_SIGNALS:
            loop.add_signal_handler(number, process.end, f"signal {number.name}")
        if self.hub:
            gone = "the hub that started us is gone"
            watch_parent(lambda: process.end(gone), parent=self.hub_pid)
        await process.run(self._tell_ready)
        return process.exit_status

    def _tell_ready(self) -> None:
        if self.ready_fd >= 0:
            os.write(self.ready_fd, b"ready\n")
            os.close(self.ready_fd)

    def _start_logging(self, directory: Path) -> None:
        handler: logging.Handler = logging.StreamHandler()
        if self.log_to_file:
            try:
                handler = PrivateLog(
                    directory / LOG_FILE, maxBytes=_LOG_BYTES_MAX, backupCount=1, encoding="utf-8"
                )
            except OSError as error:
                raise StartError(
                    f"The log {directory / LOG_FILE} cannot be written: {error.strerror}. Remove "
                    f"it, or start without --log-to-file."
                ) from error
        handler.setFormatter(logging.Formatter(_LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
        logging.basicConfig(level=int(str(self.log_level)), handlers=[handler])


class _StrictLoader(KVArgParseConfigLoader):
    """A flag that does not exist ends the scheduler, with a suggestion."""

    def _handle_unrecognized_alias(self, arg: str) -> None:
        known = [name for names in self.aliases for name in _as_tuple(names)] + [*self.flags]
        near = difflib.get_close_matches(arg.lstrip("-"), known, n=1)
        hint = f"Did you mean --{near[0]}?" if near else "See `scheduler --help`."
        raise StartError(f"There is no flag --{arg.lstrip('-')}. {hint}")


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


_OURS = ("SchedulerApp", "SettingsConfig")


def refuse_unknown(config: Mapping[str, Any], sign: str, classes: Sequence[Any]) -> None:
    """Raises StartError for a section or a name in it that nothing reads."""
    known = {each.__name__: each for each in (SchedulerApp, *classes)}
    for section, values in config.items():
        if section not in known:
            raise StartError(
                f"There is no section {section} ({sign}{section}). Use one of: {', '.join(known)}."
            )
        for name in values:
            if name not in known[section].class_trait_names(config=True):
                raise StartError(f"There is no {sign}{section}.{name}. {suggestion(name)}")


class Chooser:
    """Which devices are served: those of `--devices`, else those of CUDA_VISIBLE_DEVICES."""

    def __init__(self, devices: str, environment: str | None) -> None:
        self._devices = devices
        self._environment = environment

    def __call__(self, listed: Sequence[DeviceName]) -> Served:
        if self._devices:
            return asked_for(listed, self._devices)
        return visible(listed, self._environment)

    def __repr__(self) -> str:
        if self._devices:
            return f"<--devices {self._devices}>"
        everything = self._environment is None
        return "<all>" if everything else f"<CUDA_VISIBLE_DEVICES {self._environment!r}>"


def _config_folders() -> list[str]:
    """Jupyter's, the weightiest first. A user without a home (a container's bare number) has no
    folder of its own."""
    try:
        return jupyter_config_path()
    except RuntimeError:
        return [*ENV_CONFIG_PATH, *SYSTEM_CONFIG_PATH]


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status; what cannot start says so in one sentence and what to do."""
    app = SchedulerApp()
    try:
        app.initialize(argv)
        app.start()
    except TraitError as error:
        print(f"jupyter-gpushare: {_told(error)}", file=sys.stderr)
        return StartError.exit_code
    except StartError as error:
        print(f"jupyter-gpushare: {error}", file=sys.stderr)
        return error.exit_code
    return app.exit_status


def _told(error: TraitError) -> str:
    """A setting's own words say what to do; those of traitlets do not."""
    ours = isinstance(error.__cause__, SettingsError)
    return str(error) if ours else f"{error} Correct the flag or the file."
