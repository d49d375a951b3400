"""Three users of a real JupyterHub share one GPU while you watch: proxy, hub, the scheduler as the
hub's service, and a server for each, on free ports of this machine alone. `demo-report.json` and
`demo-timeline.png` say what happened. Where there is no GPU it is the simulated one."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.demo.memory import choose_small_machine, small_device
from tests.demo.options import Options, read_options
from tests.demo.performance import perform, run_to_the_end, summary, tell, write_down
from tests.demo.report import HubReport
from tests.demo.scenes import NAMES
from tests.demo.stage import Stage, new_view, print_device
from tests.hub.proxy import NoProxy
from tests.hub.running_hub import PASSWORD, RunningHub, end_leftovers, server_env

USERS = ("alice", "bob", "carol")
USER_OF = dict(zip(NAMES, (*USERS, USERS[-1]), strict=True))
"""The last one has two notebooks."""


def set_up(stack: ExitStack, folder: Path) -> tuple[Stage, RunningHub]:
    """A hub and what two people do at their browsers; all of it ends with the stack."""
    machine = choose_small_machine(folder)
    print_device(machine)
    env = server_env(machine.env, folder)
    try:
        hub = RunningHub(folder, server_env=env, scheduler_env={"CUDA_VISIBLE_DEVICES": "0", **env})
    except NoProxy as problem:
        raise RuntimeError(f"{problem}. 'make demo-small' does without a hub.") from problem
    stack.callback(end_leftovers, folder)
    stack.callback(hub.stop)
    view = new_view()
    view.headline("JupyterHub starts, with the scheduler as its service.")
    hub.start()
    view.headline(f"{', '.join(USERS)} log in at {hub.url} and open notebooks.")
    visitors = {user: hub.visitor(user) for user in USERS}
    kernels = [visitors[user].open_notebook(name) for name, user in USER_OF.items()]
    return Stage(machine, hub.scheduler, kernels, view), hub


def run(options: Options, folder: Path) -> int:
    """Unless the hub is to be kept, all that was started has ended when this returns."""
    began_s = time.monotonic()
    kept = False
    try:
        with ExitStack() as stack:
            stage, hub = set_up(stack, folder)
            with small_device(stage.machine) as device_bytes:
                report, acts = perform(stage, options, device_bytes=device_bytes, began_s=began_s)
            found = HubReport(report, owners=stage.owners(), users=USER_OF)
            if options.keep:
                stack.pop_all()
                kept = True
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    rows = {**summary(report), **{n: f"{o}'s, says the hub" for n, o in found.owners.items()}}
    try:
        write_down(found, acts, report.device, options)
        return tell(rows, found, options.folder)
    finally:
        if kept:
            print_logins(hub)


def print_logins(hub: RunningHub) -> None:
    assert hub.process
    print(f"\nThe hub goes on at {hub.url}")
    for user in USERS:
        print(f"  log in as {user}, password: {PASSWORD}")
    print(f"Its files are in {hub.folder}. End it with: kill {hub.process.pid}")


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv, __doc__)
    return run_to_the_end(lambda: run(options, Path(tempfile.mkdtemp(prefix="gpushare-demo-"))))


if __name__ == "__main__":
    sys.exit(main())
