"""A control group (version 2) that only the hook believes in, led by `GPUSHARE_CGROUP_ROOT`."""

from __future__ import annotations

from pathlib import Path

UNLIMITED = "max"


class FakeCgroup:
    """The group of a process, as the machine's own /proc/self/cgroup names it, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / own_path().lstrip("/")
        self._folder.mkdir(parents=True, exist_ok=True)
        (root / "cgroup.controllers").write_text("memory\n")
        (self._folder / "memory.current").write_text("0\n")
        (self._folder / "memory.stat").write_text("anon 0\nfile 0\ninactive_file 0\n")
        self.limit(None)

    def env(self) -> dict[str, str]:
        return {"GPUSHARE_CGROUP_ROOT": str(self._root)}

    def limit(self, size: int | None) -> None:
        """So much may be used; None: no limit."""
        text = UNLIMITED if size is None else str(size)
        replacement = self._folder / "memory.max.new"
        replacement.write_text(f"{text}\n")
        replacement.replace(self._folder / "memory.max")


def own_path() -> str:
    """Of version 2; the root's where this machine has no such line."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"
