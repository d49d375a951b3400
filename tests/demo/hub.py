"""Two users of a real JupyterHub share one GPU while you watch: proxy, hub, the scheduler as the
hub's service, and a server for each, on free ports of this machine alone. `demo-report.json` and
`demo-timeline.png` say what happened. Where there is no GPU it is the simulated one."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import requests

from jupyter_gpushare.client import ClientError
from tests.demo.__main__ import (
    WITH_TURNS,
    WITHOUT_TURNS,
    Demo,
    Options,
    end_politely,
    print_failures,
    print_summary,
)
from tests.demo.live import LiveView
from tests.demo.picture import draw
from tests.demo.report import Report, make_report
from tests.hub.proxy import NoProxy
from tests.hub.running_hub import PASSWORD, RunningHub, end_leftovers, server_env
from tests.support.machine import choose_machine
from tests.support.observed import ObservedKernels

USERS = ("alice", "bob")
NOTEBOOKS = tuple(f"{user}.ipynb" for user in USERS)


class HubDemo(Demo):
    """The acts of the small demo, played by two users of a hub."""

    def __init__(self, stack: ExitStack, options: Options, folder: Path) -> None:
        self._options = options
        self.machine = choose_machine(folder)
        self._print_device()
        env = server_env(self.machine.env, folder)
        self.hub = RunningHub(
            folder,
            server_env=env,
            scheduler_env={"CUDA_VISIBLE_DEVICES": "0", **env},
        )
        stack.callback(end_leftovers, folder)
        stack.callback(self.hub.stop)
        self._view = LiveView(NOTEBOOKS, sys.stdout)
        self._view.headline("JupyterHub starts, with the scheduler as its service.")
        self.hub.start()
        self._client = self.hub.scheduler
        self._view.headline(f"{' and '.join(USERS)} log in at {self.hub.url} and open notebooks.")
        visitors = [self.hub.visitor(user) for user in USERS]
        kernels = [
            visitor.open_notebook(name) for visitor, name in zip(visitors, NOTEBOOKS, strict=True)
        ]
        self.observed = ObservedKernels(self.machine, kernels)
        self.observed.set_up()

    def owners(self) -> dict[str, str]:
        """Whom the scheduler takes each notebook for; both run under the same account."""
        tenants = self._client.status()["tenants"]
        return {t["name"]: t["owner"] for t in tenants if t["name"] in NOTEBOOKS}


@dataclass(frozen=True)
class HubReport:
    """The small demo's report, and what only a hub can show."""

    report: Report
    owners: dict[str, str]

    @property
    def owners_from_hub(self) -> bool:
        return self.owners == dict(zip(NOTEBOOKS, USERS, strict=True))

    def as_json(self) -> dict[str, object]:
        return {
            **self.report.as_json(),
            "users": len(set(self.owners.values())),
            "owners_from_hub": self.owners_from_hub,
        }

    def complaints(self) -> list[str]:
        found = self.report.complaints()
        if not self.owners_from_hub:
            found.append(
                f"The scheduler takes other users for the notebooks' owners: {self.owners}."
            )
        return found


def run(options: Options, folder: Path, *, keep: bool) -> HubReport:
    """The whole demo; unless it is to be kept, all that it started has ended when it returns."""
    began_s = time.monotonic()
    with ExitStack() as stack:
        demo = HubDemo(stack, options, folder)
        shared = demo.play(WITH_TURNS, anti_thrash="on")
        waits_told, failed = demo.waits_told(), list(demo.observed.failed)
        control = demo.play(WITHOUT_TURNS, anti_thrash="off")
        failed += demo.observed.failed
        print_failures(failed)
        owners = demo.owners()
        report = make_report(
            device=demo.machine.device,
            simulated=demo.machine.simulated,
            judged_by=demo.observed.judged_by,
            names=NOTEBOOKS,
            cells=shared.cells,
            works=shared.works,
            works_without_turns=control.works,
            cells_all=2 * options.cells * len(NOTEBOOKS),
            cells_failed=len(failed),
            waits_told=waits_told,
            seconds=time.monotonic() - began_s,
        )
        if keep:
            demo.hub.scheduler.change_settings({"anti_thrash": "on"})
            print_logins(demo.hub)
            stack.pop_all()
    draw([shared, control], NOTEBOOKS, options.folder / "demo-timeline.png", report.device)
    return HubReport(report, owners)


def print_logins(hub: RunningHub) -> None:
    assert hub.process
    print(f"\nThe hub goes on at {hub.url}")
    for user in USERS:
        print(f"  log in as {user}, password: {PASSWORD}")
    print(f"Its files are in {hub.folder}. End it with: kill {hub.process.pid}")


def read_options(argv: list[str] | None) -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(prog="python -m tests.demo.hub", description=__doc__)
    parser.add_argument("--cells", type=int, default=8, help="cells in each notebook")
    parser.add_argument("--launches", type=int, default=6, help="launches in each cell")
    parser.add_argument("--launch-ms", type=float, default=20.0, help="how long each takes")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the report")
    parser.add_argument("--keep", action="store_true", help="leave the hub up at the end")
    given = parser.parse_args(argv)
    keep = given.keep or os.environ.get("KEEP", "") not in ("", "0")
    return Options(given.cells, given.launches, given.launch_ms, given.output), keep


def main(argv: list[str] | None = None) -> int:
    options, keep = read_options(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_politely)
    folder = Path(tempfile.mkdtemp(prefix="gpushare-demo-"))
    kept = False
    try:
        found = run(options, folder, keep=keep)
        kept = keep
    except KeyboardInterrupt:
        print("\nStopped; everything that the demo started has ended.", file=sys.stderr)
        return 130
    except NoProxy as error:
        print(f"\nThe demo needs JupyterHub's proxy: {error}.", file=sys.stderr)
        return 1
    except (AssertionError, ClientError, OSError, RuntimeError, requests.HTTPError) as error:
        print(f"\nThe demo could not run to its end: {error}", file=sys.stderr)
        return 1
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    (options.folder / "demo-report.json").write_text(json.dumps(found.as_json(), indent=2) + "\n")
    print_summary(found.report)
    for name, owner in found.owners.items():
        print(f"  {name:<24}{owner}'s, says the hub")
    complaints = found.complaints()
    for complaint in complaints:
        print(f"\nThis does not hold: {complaint}", file=sys.stderr)
    print(f"\nWritten: {options.folder / 'demo-report.json'}, demo-timeline.png")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
