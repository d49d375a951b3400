"""Where the threads of a process are: said by a test that has waited for it in vain.

Standard library only, for tests/driver also runs where our package is not."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

DEBUGGER_S_MAX = 60.0
FRAMES_MAX = 16
CHARACTERS_OF_A_LINE = 160


def stacks_of(pid: int) -> str:
    """By the debugger where there is one; else what the kernel says of each thread."""
    if shutil.which("gdb"):
        ask = f"thread apply all backtrace {FRAMES_MAX}"
        command = ["gdb", "-p", str(pid), "-nx", "-batch", "-ex", "set pagination off", "-ex", ask]
        with suppress(subprocess.TimeoutExpired):
            said = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=DEBUGGER_S_MAX
            ).stdout
            lines = [line for line in said.splitlines() if line.startswith(("Thread ", "#"))]
            if lines:
                return "\n".join(line[:CHARACTERS_OF_A_LINE] for line in lines)
    return "\n".join(_thread(folder) for folder in sorted(Path(f"/proc/{pid}/task").glob("*")))


def threads_of(pid: int) -> dict[Path, str]:
    """The folder of each thread in /proc, with its name; without those that end meanwhile."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found[task] = (task / "comm").read_text().strip()
    return found


def descendants_of(pid: int) -> list[int]:
    """The processes that it has started, and theirs, as far as they live."""
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = file.read_text().rpartition(")")[2].split()
            children.setdefault(int(after_name[1]), []).append(int(file.parent.name))
    found = list(children.get(pid, []))
    for each in found:  # grows by those of each
        found += children.get(each, [])
    return found


def _thread(folder: Path) -> str:
    words = []
    for name in ("comm", "wchan", "syscall"):
        with suppress(OSError):
            words.append((folder / name).read_text().strip())
    return f"Thread {folder.name}: {', '.join(words)}"
