"""Bad input of clusters: pods that mount what they were not given, credentials of elsewhere, one
user id on two nodes, and a container that is paused while it has the turn."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.protocol.messages import RefusalCode, TurnGranted
from jupyter_gpushare.scheduler.identity.tokens import TenantRecord, TokenSigner
from tests.scheduler.containers.test_foreign_peers import (
    IN_A_CONTAINER,
    Container,
    as_,
    holder_in,
    shared,
    tenants_of,
    waiter,
)
from tests.scheduler.test_tenants_dir import ADMIN_VERBS, hub_url
from tests.support.paths import ROOT
from tests.support.scheduler_process import (
    SchedulerUnderTest,
    environment,
    running_scheduler,
)
from tests.support.waits import WAIT_S_MAX

__all__ = ["hub_url", "shared"]

INTRUDER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from jupyter_gpushare.client import RequestRefused, SchedulerClient
from tests.support.hook_client import ScriptedClient
here, token, kernel_tokens, verbs = Path(sys.argv[2]), *map(json.loads, sys.argv[3:6])
scheduler = SchedulerClient(here / "http.sock", uids=frozenset(range(70000)), hub_token=token)
answers, refusals = [], []
for verb, path, body in [["GET", "/status", None], *verbs]:
    try:
        scheduler._ask(verb, path, body)
        answers.append(200)
    except RequestRefused as refused:
        answers.append(refused.status)
try:
    scheduler.register_tenant("intruder", "kernel")
    answers.append(200)
except RequestRefused as refused:
    answers.append(refused.status)
for kernel_token in kernel_tokens:
    hook = ScriptedClient(here / "hook.sock")
    hook.hello(kernel_token)
    refusals.append(hook.expect_refused().code.value)
print(json.dumps([answers, refusals]))
"""


def intrude(here: Path, token: str, kernel_tokens: list[str]) -> tuple[list[int], list[int]]:
    """What a container with this directory and this hub token is answered: to each verb and to a
    registration, and to each token of a kernel."""
    words = [ROOT, here, *map(json.dumps, (token, kernel_tokens, ADMIN_VERBS))]
    done = subprocess.run(
        [*IN_A_CONTAINER, sys.executable, "-c", INTRUDER, *map(str, words)],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode == 0, done.stderr
    answers, refusals = json.loads(done.stdout)
    return answers, refusals


@pytest.mark.promise(
    "bad-input-55",
    "A pod that mounts the tenants' directory without a seat, and one of another namespace with "
    "the token of another hub, register nobody, learn nothing and disturb nobody",
)
@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("of another hub", 403)], ids=["no-seat", "namespace"]
)
def test_a_pod_that_is_not_the_hubs(shared: SchedulerUnderTest, token: str, status: int) -> None:
    """It is root within, and has every socket. Tokens that it makes by itself are none, also such
    as another node's key has signed."""
    record = TenantRecord(f"h{'0' * 24}-{'0' * 16}", 0, "hers", "kernel", hub_user="ann")
    hers = as_(shared, "ann").register_tenant("hers", "kernel").token
    forged = ["", "nonsense", TokenSigner(b"k" * 32).issue(record), f"{hers[:-6]}AAAAAA"]
    with Container(shared), waiter(shared) as waits:
        before = names(shared)
        answers, refusals = intrude(tenants_of(shared), token, forged)
        assert set(answers) == {status}
        assert refusals == [RefusalCode.BAD_TOKEN.value] * len(forged)
        assert names(shared) == before
        assert not waits.heard(TurnGranted)


def names(scheduler: SchedulerUnderTest) -> list[tuple[str, str]]:
    tenants = as_(scheduler, "desk").status()["tenants"]
    return sorted((each["owner"], each["name"]) for each in tenants)


# ---- one user id, two people -----------------------------------------------------------------


class OnAnotherNode(SchedulerUnderTest):
    """There the number of this test's account belongs to mallory."""

    def _start(self, arguments: list[str], env: dict[str, str], log: int, tell: int) -> Any:
        accounts = self.directory.parent / "passwd"
        accounts.write_text("mallory:x:0:0::/:/bin/sh\n")
        program = [sys.executable, "-m", "jupyter_gpushare.cli.main", *arguments]
        lines = 'mount --bind "$0" /etc/passwd && exec "$@"'
        return subprocess.Popen(
            [*("unshare", "--mount", "--map-root-user", "sh", "-c", lines, accounts), *program],
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**env, "PYTHONPATH": str(ROOT)},
            cwd="/",
        )


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[tuple[SchedulerUnderTest, SchedulerUnderTest]]:
    """Each without a hub, as with Slurm."""
    for name in "ab":
        (tmp_path / name).mkdir()
    with ExitStack() as nodes:
        here = nodes.enter_context(running_scheduler(tmp_path / "a/run"))
        there = nodes.enter_context(running_scheduler(tmp_path / "b/run", kind=OnAnotherNode))
        yield here, there


@pytest.mark.promise(
    "bad-input-56",
    "A user id that is two people on two nodes: each node has its own owner, and what one node has "
    "given out is nothing on the other",
)
def test_one_number_two_people(two_nodes: tuple[SchedulerUnderTest, SchedulerUnderTest]) -> None:
    """Neither a tenant nor its token goes from node to node, though the number is the same."""
    here, there = two_nodes
    ours, theirs = here.tenant("ours"), there.tenant("theirs")
    assert [each["owner"] for each in here.status()["tenants"]] == [pwd.getpwuid(os.getuid())[0]]
    assert [each["owner"] for each in there.status()["tenants"]] == ["mallory"]
    for node, stranger in ((there, ours), (here, theirs)):
        with node.connect() as client:
            client.hello(stranger.token)
            assert client.expect_refused().code is RefusalCode.BAD_TOKEN
        for deed in (node.client.evict_tenant, node.client.release_tenant):
            with pytest.raises(RequestRefused) as refused:
                deed(stranger.tenant_id)
            assert refused.value.status in (403, 404, 409)
    with here.connect() as client:
        client.join(ours.token)


# ---- a container that is paused --------------------------------------------------------------


@pytest.mark.promise("bad-input-24")
def test_a_holder_in_a_container_is_stopped(shared: SchedulerUnderTest) -> None:
    """It is seen as frozen by the number that it has here, keeps its turn, is overdue in the end,
    and lives. Its end gives the turn to the next."""
    shared.client.change_settings({"quantum_s": 0.05, "overdue_s": 0.1})
    with Container(shared) as container, waiter(shared) as waits:
        pid = holder_in(shared.status())["pid"]
        os.kill(pid, signal.SIGSTOP)
        shared.eventually(lambda status: holder_in(status)["frozen"])
        shared.eventually(lambda status: holder_in(status)["overdue"])
        assert not waits.heard(TurnGranted)
        (why,) = [t["blocked_reason"] for t in shared.status()["tenants"] if t["name"] == "waits"]
        assert why and "stopped" in why
        os.kill(pid, signal.SIGCONT)
        shared.eventually(lambda status: not holder_in(status)["frozen"])
        assert container.runs
        os.kill(pid, signal.SIGKILL)
        waits.expect(TurnGranted)
