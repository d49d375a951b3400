"""The directory that a hub's scheduler has for its tenants: it may be mounted anywhere, and whoever
is root where it is mounted finds no key and administers nothing."""

from __future__ import annotations

import http.server
import json
import socketserver
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.client import RequestRefused, SchedulerClient
from jupyter_gpushare.client.paths import TENANTS_DIR
from jupyter_gpushare.scheduler.base.errors import StartError
from jupyter_gpushare.scheduler.runtime_dir import RuntimeDir
from tests.support.hook_client import ScriptedClient
from tests.support.other_user import let_others_in
from tests.support.paths import ROOT
from tests.support.scheduler_process import (
    SchedulerOfHub,
    SchedulerUnderTest,
    environment,
    running_scheduler,
)
from tests.support.waits import WAIT_S_MAX

SCOPES = {"ann": ["custom:gpushare:use"], "desk": ["custom:gpushare:admin"]}
ADMIN_VERBS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("PATCH", "/settings", {"quantum_s": "7s"}),
    ("DELETE", "/settings/quantum_s", {}),
    ("PUT", "/devices/0/mode", {"mode": "paused"}),
    ("POST", "/tenants/x/boost", {}),
    ("GET", "/audit", {}),
    ("POST", "/shutdown", {}),
)


@pytest.fixture(scope="module")
def hub_url() -> Iterator[str]:
    """A hub's API: each user's token is the user's name."""

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = (self.headers.get("Authorization") or "").rpartition(" ")[2]
            known = name in SCOPES
            user = {"kind": "user", "name": name, "groups": [], "scopes": SCOPES.get(name, [])}
            body = json.dumps(user if known else {}).encode()
            self.send_response(200 if known else 403)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hub) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hub/api"
        server.shutdown()
        thread.join()


@pytest.fixture
def shared(runtime: Path, hub_url: str) -> Iterator[SchedulerUnderTest]:
    """A scheduler of a hub, which everybody can reach."""
    let_others_in(runtime.parent)
    with running_scheduler(runtime, kind=SchedulerOfHub, api_url=hub_url) as scheduler:
        yield scheduler


def client_at(directory: Path, token: str) -> SchedulerClient:
    return SchedulerClient(directory / "http.sock", hub_token=token)


@pytest.mark.promise(
    "hub-32",
    "A hub's tenants have a directory with two sockets and nothing else: where it is mounted, root "
    "reads no key and gets 401 on every verb of an administrator",
)
def test_it_has_two_sockets_and_nothing_else(shared: SchedulerUnderTest) -> None:
    """Keys, logs and the socket at which accounts count lie one directory up."""
    tenants = shared.directory / TENANTS_DIR
    assert sorted(each.name for each in tenants.iterdir()) == ["hook.sock", "http.sock"]
    assert stat.S_IMODE(tenants.stat().st_mode) == 0o711
    assert (shared.directory / "token.key").exists()


@pytest.mark.promise("hub-32")
def test_no_account_is_anybody_there(shared: SchedulerUnderTest) -> None:
    """The administrator at a terminal, who needs no token at the scheduler's own socket, does
    there; a user's token is that user, and an administrator's is one."""
    tenants = shared.directory / TENANTS_DIR
    assert client_at(shared.directory, "").status()
    for verb, path, body in ADMIN_VERBS:
        for token, status in (("", 401), ("nobody", 403), ("ann", 403)):
            with pytest.raises(RequestRefused) as refused:
                client_at(tenants, token)._ask(verb, path, body)
            if (token, path) != (
                "ann",
                "/tenants/x/boost",
            ):  # 404: whether there is one is not told
                assert refused.value.status == status, (token, path)
    assert client_at(tenants, "desk").change_settings({"quantum_s": "7s"})["quantum_s"] == 7


IN_A_CONTAINER = """
import json, os, stat, sys
sys.path.insert(0, {root!r})
from jupyter_gpushare.client import RequestRefused, SchedulerClient
from pathlib import Path
here = Path({here!r})
keys = [str(p) for p in Path({outside!r}).rglob("*") if p.is_file()]
files = [p for p in here.rglob("*") if not stat.S_ISSOCK(p.lstat().st_mode)]
answers = []
for verb, path, body in {verbs!r}:
    try:
        SchedulerClient(here / "http.sock", uids=frozenset(range(70000)))._ask(verb, path, body)
        answers.append(200)
    except RequestRefused as refused:
        answers.append(refused.status)
try:
    (here / "planted").write_text("x")
except OSError as error:
    planted = error.strerror
else:
    planted = ""
print(json.dumps([os.getuid(), keys, [str(f) for f in files], answers, planted]))
"""


@pytest.mark.promise("hub-32")
def test_root_of_a_container(shared: SchedulerUnderTest, tmp_path: Path) -> None:
    """It has a user, a pid and a mount namespace of its own, the directory read-only at another
    place, and nothing of where that lies outside."""
    here = tmp_path / "inside"
    here.mkdir()
    script = tmp_path / "inside.py"
    fill = {"root": str(ROOT), "here": str(here), "outside": str(shared.directory)}
    script.write_text(IN_A_CONTAINER.format(**fill, verbs=ADMIN_VERBS))
    steps = [
        f"mount --bind {shared.directory / TENANTS_DIR} {here}",
        f"mount -o remount,bind,ro {here}",
        f"mount -t tmpfs none {shared.directory}",
        f"{sys.executable} {script}",
    ]
    inside = ["unshare", "--mount", "--pid", "--fork", "--map-root-user", "sh", "-ec"]
    done = subprocess.run(
        [*inside, " && ".join(steps)],
        env=environment({}),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode == 0, done.stderr
    uid, keys, files, answers, planted = json.loads(done.stdout)
    assert (uid, keys, files) == (0, [], [])
    assert answers == [401] * len(ADMIN_VERBS)
    assert planted == "Read-only file system"


@pytest.mark.promise(
    "hub-33", "A kernel finds its sockets where its own directory is mounted, whatever it is called"
)
def test_a_tenant_comes_through_a_mounted_directory(
    shared: SchedulerUnderTest, tmp_path: Path
) -> None:
    """Registered there, it is told of the socket beside the one that answered, and joins there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(shared.directory / TENANTS_DIR)  # as a mount is seen: by another name
    tenant = client_at(elsewhere, "ann").register_tenant("notebook", "kernel")
    assert tenant.socket == str(elsewhere / "hook.sock")
    welcome = ScriptedClient(Path(tenant.socket)).join(tenant.token)
    assert welcome.tenant_id == tenant.tenant_id
    assert [each["owner"] for each in shared.status()["tenants"]] == ["ann"]


def test_something_else_in_it_ends_the_start(runtime: Path) -> None:
    """It would be given to containers: the message names it."""
    directory = RuntimeDir(runtime, open_to_all=False, version="1")
    directory.make_tenants_dir()
    (runtime / TENANTS_DIR / "secret").write_text("x")
    with pytest.raises(StartError, match=r"holds 'secret' besides our sockets\. Move that away"):
        directory.make_tenants_dir()
    (runtime / TENANTS_DIR / "secret").unlink()
    (runtime / TENANTS_DIR).rmdir()
    (runtime / TENANTS_DIR).symlink_to("/tmp")
    with pytest.raises(StartError, match="is not a directory of ours"):
        directory.make_tenants_dir()
    directory.release(clients_left=False)


def test_without_a_hub_there_is_none(scheduler: SchedulerUnderTest) -> None:
    """Accounts count there, which a mounted socket cannot tell."""
    assert not (scheduler.directory / TENANTS_DIR).exists()
