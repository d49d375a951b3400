"""`jupyter gpushare scheduler`: configuration files and flags, logging, and a clean end."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_core.application import JupyterApp, NoStart, base_aliases, base_flags
from jupyter_core.paths import ENV_CONFIG_PATH, SYSTEM_CONFIG_PATH
from traitlets import Bool, Float, Integer, TraitError, Unicode, default
from traitlets.config import Config, Configurable
from traitlets.config.loader import (
    ConfigFileNotFound,
    JSONFileConfigLoader,
    KVArgParseConfigLoader,
    PyFileConfigLoader,
)

from jupyter_gpushare.client.paths import runtime_dir
from jupyter_gpushare.core.configuration.checks import unseen_told
from jupyter_gpushare.core.configuration.layers import Layers
from jupyter_gpushare.core.configuration.values import ALL_SETTINGS, spellings, suggestion
from jupyter_gpushare.core.settings import SettingsError
from jupyter_gpushare.version import __version__

from .base.errors import StartError
from .base.private_file import PrivateLog
from .base.settings_file import FileRefused, SettingsFile
from .config import given_settings, setting_traits, start_settings_of, told_changes
from .devices.visible import DeviceName, Served, asked_for, visible
from .identity.seen import Names
from .parent import watch_parent
from .process import ProcessOptions, SchedulerProcess
from .report.options import report_options
from .runtime_dir import LOG_FILE, RuntimeDir
from .service.live_settings import LiveSettings

log = logging.getLogger(__name__)

_LOG_BYTES_MAX = 10 << 20
_LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _NamesItself:
    """A configuration file that cannot be read ends the scheduler with a sentence that names it."""

    def load_config(self) -> Config:
        try:
            return super().load_config()  # type: ignore[misc, no-any-return]
        except ConfigFileNotFound:
            raise
        except Exception as error:  # a configuration file is a program and may raise anything
            path = self.full_filename  # type: ignore[attr-defined]
            raise StartError(
                f"The configuration file {path} cannot be read: {error!r}. Correct it."
            ) from error


class _PythonFile(_NamesItself, PyFileConfigLoader):
    pass


class _JsonFile(_NamesItself, JSONFileConfigLoader):
    pass


class GPUShareScheduler(JupyterApp):
    """One scheduler for the devices of this machine. Its settings are the rows of the table in
    core/settings.py; `jupyter gpushare set` changes most of them while it runs."""

    name = "jupyter-gpushare-scheduler"
    description = "Serves the turns on this machine's GPUs until it is stopped."
    version = __version__
    python_config_loader_class = _PythonFile
    json_config_loader_class = _JsonFile
    raise_config_file_errors = True
    # The log level is this class's own: a file that sets it there would outweigh a flag that sets
    # it for every application.
    aliases: dict[Any, str] = {  # noqa: RUF012
        **base_aliases,
        **{spellings(row): f"GPUShareScheduler.{row.name}" for row in ALL_SETTINGS},
        "hub-pid": "GPUShareScheduler.hub_pid",
        "idle-exit-s": "GPUShareScheduler.idle_exit_s",
        "journal": "GPUShareScheduler.journal_file",
        "log-level": "GPUShareScheduler.log_level",
        "ready-fd": "GPUShareScheduler.ready_fd",
        "report-ca": "GPUShareScheduler.report_ca",
        "report-platform": "GPUShareScheduler.report_platform",
        "report-to": "GPUShareScheduler.report_to",
        "report-token-file": "GPUShareScheduler.report_token_file",
        "runtime-dir": "GPUShareScheduler.runtime_dir",
        "settings-file": "GPUShareScheduler.settings_file",
    }
    flags = {  # noqa: RUF012
        **base_flags,
        "check": (
            {"GPUShareScheduler": {"check": True}},
            "Check the core's invariants after each event.",
        ),
        "check-config": (
            {"GPUShareScheduler": {"only_checks": True}},
            "Read flags and files, say what is wrong with them, and end.",
        ),
        "debug": (
            {"GPUShareScheduler": {"log_level": "DEBUG"}},
            "Log each event and what follows from it.",
        ),
        "hidden-tenants": (
            {"GPUShareScheduler": {"hidden_tenants": True}},
            "The processes of tenants run in pid namespaces that are not seen from here: refuse "
            "settings that need to see them.",
        ),
        "hub": (
            {"GPUShareScheduler": {"hub": True}},
            "Ask the JupyterHub that started this process whose a kernel is.",
        ),
        "log-to-file": (
            {"GPUShareScheduler": {"log_to_file": True}},
            f"Log to {LOG_FILE} in the runtime directory instead of the terminal.",
        ),
        "serve-all-users": (
            {"GPUShareScheduler": {"serves_all": True}},
            "Serve every user of the machine, not only the one who starts it.",
        ),
    }

    locals().update(setting_traits())
    runtime_dir = Unicode(
        "", help="Where the sockets are; as the environment says where this is empty."
    ).tag(config=True)
    serves_all = Bool(False, help="Serve every user of the machine.").tag(config=True)
    hidden_tenants = Bool(False, help="The processes of tenants are not seen.").tag(config=True)
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
    report_to = Unicode(
        "", help="The address of the view of all nodes, which is told what happens here."
    ).tag(config=True)
    report_token_file = Unicode(
        "", help="A file with the token by which the view knows this node."
    ).tag(config=True)
    report_ca = Unicode(
        "", help="A file with the authority of the view's certificate; empty: the system's."
    ).tag(config=True)
    report_platform = Unicode(
        "", help="What the view is told that this node is: machine, docker, slurm or kubernetes."
    ).tag(config=True)
    settings_file = Unicode(
        "", help="A TOML file with settings, which is followed while the scheduler runs."
    ).tag(config=True)
    ready_fd = Integer(
        -1, help="Write a line to this descriptor, and close it, once the sockets answer."
    ).tag(config=True)

    exit_status = os.EX_OK

    @default("log_level")
    def _log_level_is(self) -> int:
        return logging.INFO

    @default("config_file_name")
    def _config_file_name_is(self) -> str:
        return "jupyter_gpushare_config"

    @property
    def config_file_paths(self) -> list[str]:
        """Jupyter's, the weightiest first. A user without a home (a container's bare number) has
        no folder of its own."""
        try:
            return super().config_file_paths
        except RuntimeError:
            return [*ENV_CONFIG_PATH, *SYSTEM_CONFIG_PATH]

    def migrate_config(self) -> None:
        """There is nothing of IPython 3 to bring along, and the user may have no home."""

    def _runtime_dir_changed(self, change: Any) -> None:
        """JupyterApp would make the folder; RuntimeDir makes it, with the rights it needs."""

    def initialize(self, argv: Sequence[str] | None = None) -> None:
        """Flags win over files."""
        super().initialize(list(argv) if argv is not None else None)
        if self.extra_args:
            raise StartError(
                f"The scheduler takes no argument {self.extra_args[0]!r}. See `scheduler --help`."
            )

    def load_config_file(self, suppress_errors: bool = False) -> None:  # type: ignore[override]
        """JupyterApp would pass over a file that is named and is not there."""
        if self.config_file and not Path(self.config_file).is_file():
            path = Path(self.config_file).absolute()
            raise StartError(f"There is no configuration file {path}. Correct --config.")
        super().load_config_file(suppress_errors)

    def _load_config(self, cfg: Config, *args: Any, **kwargs: Any) -> None:
        """traitlets would warn of an unknown name, and go on without it."""
        self._refuse_unknown(cfg)
        try:
            super()._load_config(cfg, *args, **kwargs)
        except TraitError as error:
            raise StartError(_told(error)) from error

    def _refuse_unknown(self, cfg: Config) -> None:
        """Raises StartError for a name that nothing reads. A file may be of other programs too,
        so that a section may be theirs; the sections of flags are ours."""
        known = {each.__name__: each for each in type(self).mro() if issubclass(each, Configurable)}
        ours = type(self).__name__
        for section in self.cli_config:
            if section not in known:
                raise StartError(f"There is no section {section} (--{section}). Use --{ours}.")
        read = [("--", section, names) for section, names in self.cli_config.items()]
        for sign, section, names in [*read, ("c.", ours, cfg.get(ours, {}))]:
            for name in names:
                if name not in known[section].class_trait_names(config=True):
                    raise StartError(f"There is no {sign}{section}.{name}. {suggestion(name)}")

    def _create_loader(self, argv: Any, aliases: Any, flags: Any, classes: Any) -> Any:
        """traitlets would warn of an unknown flag, and go on without it."""
        return _StrictLoader(argv, aliases, flags, classes=classes, log=self.log)

    def start(self) -> None:
        """Run until SIGTERM, SIGINT or idleness."""
        super().start()
        path = Path(self.runtime_dir or runtime_dir()).absolute()
        followed = Path(self.settings_file).absolute() if self.settings_file else None
        try:
            settings = LiveSettings(
                Layers(start=given_settings(self)), hidden_tenants=self.hidden_tenants
            )
            at_start = start_settings_of(self)
            file = SettingsFile(followed, settings.take_file) if followed else None
            report = report_options(
                to=self.report_to,
                token_file=self.report_token_file,
                ca_file=self.report_ca,
                platform=self.report_platform,
            )
            if self.only_checks:
                if file:
                    file.check()
                told = "" if self.hub else unseen_told(Names().unseen(settings.now))
                if told:
                    print(told)
                return
        except (SettingsError, FileRefused) as error:
            raise StartError(str(error)) from error
        directory = RuntimeDir(path, open_to_all=self.serves_all, version=__version__)
        self._start_logging(directory.path)
        settings.warn()
        if file:
            file.read()
        options = ProcessOptions(
            settings=settings,
            settings_file=file,
            choose_devices=Chooser(at_start.devices, os.environ.get("CUDA_VISIBLE_DEVICES")),
            serves_all=self.serves_all,
            hub=self.hub,
            idle_exit_s=self.idle_exit_s or None,
            journal=Path(self.journal_file) if self.journal_file else None,
            check=self.check,
            cap_bytes=at_start.memory_cap_bytes,
            probe_period_s=at_start.probe_period_s,
            message_deadline_s=at_start.message_deadline_s,
            journal_days=at_start.journal_days,
            journal_names=at_start.journal_names,
            report=report,
        )
        log.info("not as by default: %s", told_changes(self, settings.now) or "nothing")
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
        # It comes with the hub's package, and names each of its parts.
        logging.getLogger("alembic").setLevel(logging.WARNING)


class _StrictLoader(KVArgParseConfigLoader):
    """A flag that does not exist ends the scheduler, with a suggestion."""

    def _handle_unrecognized_alias(self, arg: str) -> None:
        known = [name for names in self.aliases for name in _as_tuple(names)] + [*self.flags]
        near = difflib.get_close_matches(arg.lstrip("-"), known, n=1)
        hint = f"Did you mean --{near[0]}?" if near else "See `scheduler --help`."
        raise StartError(f"There is no flag --{arg.lstrip('-')}. {hint}")


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


class Chooser:
    """Which devices are served: those of `--devices`, else those of CUDA_VISIBLE_DEVICES."""

    def __init__(self, devices: str, environment: str | None) -> None:
        self._devices = devices
        self._environment = environment

    def __call__(self, listed: Sequence[DeviceName]) -> Served:
        if self._devices:
            return asked_for(listed, self._devices)
        return visible(listed, self._environment)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status; what cannot start says so in one sentence and what to do."""
    app = GPUShareScheduler()
    try:
        app.initialize(argv)
        app.start()
    except NoStart:  # it has written what was asked for, such as a configuration file
        return os.EX_OK
    except StartError as error:
        print(f"jupyter-gpushare: {error}", file=sys.stderr)
        return error.exit_code
    return app.exit_status


def _told(error: TraitError) -> str:
    """A setting's own words say what to do; those of traitlets do not."""
    ours = isinstance(error.__cause__, SettingsError)
    return str(error) if ours else f"{error} Correct the flag or the file."
