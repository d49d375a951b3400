"""A simulated machine for tests: one fresh directory, the environment that leads processes to it,
and its journal, by which tests judge what really happened on the devices."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from tests.support.compiled import compiled_library, library_named
from tests.support.paths import ROOT, SIM_DRIVER, SIM_LIBRARIES

MIB = 1 << 20
GIB = 1 << 30


def load_journal_reader() -> ModuleType:
    """hook/sim/journal.py as a module: it belongs to the simulated GPU, not to a package."""
    name = "gpushare_sim_journal"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "hook" / "sim" / "journal.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def driver_with(folder: Path, source: str) -> str:
    """The simulated driver with these functions of C besides, or in the place of its own: the
    LD_LIBRARY_PATH that leads to it."""
    folder.mkdir()
    older = (SIM_LIBRARIES / "libcuda.so.1").read_bytes()
    (folder / "libcudb.so.1").write_bytes(older.replace(b"libcuda.so.1\0", b"libcudb.so.1\0"))
    renamed = compiled_library("", "-Wl,-soname,libcudb.so.1")  # its name is all that is needed
    flags = ("-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", f"-L{renamed.parent}")
    library_named(folder / "libcuda.so.1", source, *flags, f"-l:{renamed.name}")
    return f"{folder}:{SIM_LIBRARIES}"


class SimulatedMachine:
    """One simulated machine; it comes to life with the first process that opens CUDA under `env()`.

    `config` is what hook/sim/machine/segment.h lists, by its names there (`launch_ns=5000`, ...).
    """

    def __init__(
        self, directory: Path, devices: int = 1, bytes_per_device: int = 8 * GIB, **config: Any
    ) -> None:
        if not SIM_DRIVER.exists():
            raise FileNotFoundError(f"{SIM_DRIVER} is missing. Run `make build` first.")
        self.directory = directory
        self.config = {"devices": devices, "device_bytes": bytes_per_device, **config}
        directory.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self.config.items())
        (directory / "config").write_text("".join(lines))

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a child process that shall see this machine's devices."""
        paths = [str(SIM_LIBRARIES), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(path for path in paths if path),
            "GPUSHARE_SIM_DIR": str(self.directory),
            **(extra or {}),
        }

    def journal(self) -> list[Any]:
        """Every launch and copy so far, of all processes, in the order in which they began."""
        return list(load_journal_reader().read_journal(self.directory))

    def happened(self) -> list[str]:
        """What fault plans made go wrong so far, as `fail cuMemCreate`; once for each line."""
        told = self.directory / "happened"
        lines = told.read_text().splitlines() if told.exists() else []
        return [line.partition(" ")[2] for line in lines]

    def overlaps(self) -> list[tuple[Any, Any]]:
        """Pairs of work of different processes that were on one device at the same time."""
        return list(load_journal_reader().overlaps(self.journal()))

    def computing_overlaps(self) -> list[tuple[Any, Any]]:
        """The same for launches and memsets alone: memory may move beside another's."""
        reader = load_journal_reader()
        return list(reader.overlaps(self.journal(), reader.COMPUTING))

    def __enter__(self) -> SimulatedMachine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing to stop: a simulated machine is its directory."""
