"""Writes docs/settings.md from the table of settings (jupyter_gpushare/core/settings.py).

With `--check` it writes nothing and fails when the page is not what the table says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from generated_page import write_or_check

from jupyter_gpushare.core.configuration.values import shown
from jupyter_gpushare.core.settings import SETTINGS, START_SETTINGS, Setting

PAGE = Path(__file__).resolve().with_name("settings.md")

BEGINNING = """\
# Settings

This page is written by `docs/generate_settings.py` from the table in
`jupyter_gpushare/core/settings.py`.

A setting has one name everywhere. The scheduler refuses a value outside the range, and says so.

| where | how |
|---|---|
| a running scheduler, until it ends | `jupyter gpushare set quantum_s 5s`; \
`jupyter gpushare unset quantum_s` takes it back |
| a file that a running scheduler follows | `quantum_s = "5s"` in the file that \
`--settings-file` names ([admin.md](admin.md#settings-while-the-scheduler-runs)) |
| under a JupyterHub | `c.GPUShare.settings = {"quantum_s": "5s"}` before `setup(c)` \
([hub.md](hub.md)) |
| without a hub | `c.GPUShareScheduler.quantum_s = "5s"` in `jupyter_gpushare_config.py`, in one \
of the folders that `jupyter --paths` lists under `config` |
| a scheduler that you start yourself | `jupyter gpushare scheduler --quantum_s=5s` |

Where several places give a value, `set` is stronger than the settings file, and that one is
stronger than flags and Jupyter's configuration files. `jupyter gpushare config` shows where each
value comes from.

A bare number has the unit that the name ends with. Durations can also be written like `500ms`,
`5s`, `2m` or `1h`, and sizes like `512MiB` or `4GiB`. Dashes in place of underscores and names
without their unit (`quantum`) work too.

`jupyter gpushare scheduler --generate-config` writes a `jupyter_gpushare_config.py` that lists
everything. `--config=FILE` reads that file instead of `jupyter_gpushare_config.py`, and
`--check-config` says what is wrong with flags and files without a start. As every Jupyter
application does, the scheduler also reads `jupyter_config.py`, and a flag wins over a file.

## Settings that can be changed at any time

"""

AT_START = """
## Settings that need a start of the scheduler

"""

END = """
## Variables of one kernel

These variables belong in the environment of a kernel, for example in its `kernel.json`.

| variable | meaning |
|---|---|
| `GPUSHARE_DISABLE=1` | The kernel does not share the GPU. |
| `GPUSHARE_MAY_LEAVE=1` | `%gpushare off` may take the kernel out of the sharing, from its next \
restart on. |
| `GPUSHARE_MEMORY=off` | The kernel takes turns, and its memory stays on the GPU. Others may \
have to wait for it. |
| `GPUSHARE_LOG=debug` | The kernel writes each request, grant, recall and park to its stderr, or \
to the file in `GPUSHARE_LOG_FILE`. |
"""


def render() -> str:
    return "".join(
        [BEGINNING, table(SETTINGS), AT_START, table(START_SETTINGS), END],
    )


def table(rows: Iterable[Setting]) -> str:
    lines = ["| name | default | range | meaning |", "|---|---|---|---|"]
    for row in rows:
        default = shown(row, row.plain_default)
        lines.append(f"| `{row.name}` | {default} | {allowed(row)} | {row.help} |")
    return "".join(line.replace("|  |", "| |").replace("|  |", "| |") + "\n" for line in lines)


def allowed(row: Setting) -> str:
    """What the setting may be, in few words."""
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    if not row.unit:
        return ""
    high = "" if row.high >= 2**60 else f" to {shown(row, row.high)}"
    return f"{shown(row, row.low)}{high}" if high else f"from {shown(row, row.low)}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render(), description=__doc__))
