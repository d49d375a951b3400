"""What the doctor sees and says in a job of Slurm, and of a hub that is elsewhere."""

from __future__ import annotations

import dataclasses
import email.utils
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpushare.cli.checkup import hub_address
from jupyter_gpushare.cli.checkup.facts import FileFacts, JobFacts
from jupyter_gpushare.cli.checkup.finding import Level
from jupyter_gpushare.cli.checkup.findings import findings
from jupyter_gpushare.cli.checkup.hub_address import HubAnswer, ask_hub
from jupyter_gpushare.cli.checkup.job_environment import job_facts
from jupyter_gpushare.cli.checkup.servers import hub_facts
from tests.cli.machines import GIB, HEALTHY, bad, machine_with, status

IN_A_JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
SHARD = JobFacts(id="7", node="n1", has_shard=True, is_led=True)


@pytest.mark.parametrize(
    ("variables", "facts"),
    [
        ({}, JobFacts(id="7", node="n1")),
        ({"SLURM_SHARDS_ON_NODE": "1", "SLURM_JOB_GPUS": "0"}, JobFacts(has_shard=True)),
        ({"SLURM_JOB_GPUS": "0"}, JobFacts(has_gpu=True)),
        ({"SLURM_STEP_GPUS": "0"}, JobFacts(has_gpu=True)),
        ({"SLURM_SHARDS_ON_NODE": "1", "GPUSHARE_RUNTIME_DIR": "/run/x"}, SHARD),
    ],
    ids=["nothing", "shard", "gpu", "step", "led"],
)
def test_slurms_variables(variables: dict[str, str], facts: JobFacts) -> None:
    """As slurmd 22.05 sets them for jobs and steps."""
    expected = dataclasses.replace(facts, id="7", node="n1")
    assert job_facts({**IN_A_JOB, **variables}) == expected


def test_outside_of_jobs() -> None:
    """Nothing is said of Slurm."""
    assert job_facts({"SLURM_CONF": "/etc/slurm/slurm.conf"}) == JobFacts()
    assert "slurm" not in {finding.check for finding in findings(HEALTHY)}


@pytest.mark.promise(
    "cli-10",
    "In a job of Slurm the doctor says what the job lacks: a shard, a scheduler on its node, its "
    "version, host memory, the hub",
)
def test_a_job_in_which_all_is_well() -> None:
    """One line says what it has."""
    facts = dataclasses.replace(HEALTHY, job=SHARD)
    assert bad(facts) == []
    (line,) = [each.what for each in findings(facts) if each.check == "slurm"]
    assert line == "The Slurm job 7 has a shard of a GPU on the node n1."


@pytest.mark.promise("cli-10")
def test_a_node_without_a_scheduler() -> None:
    """No notebook server will start one there: the user has to ask for it."""
    missing = machine_with("scheduler", status=None, problem="No scheduler serves /run/x. Start.")
    nowhere = dataclasses.replace(missing.runtime, directory=FileFacts(path="/run/x"), sockets=())
    for facts in (missing, dataclasses.replace(missing, runtime=nowhere)):
        in_job = dataclasses.replace(facts, job=SHARD)
        (finding,) = [each for each in bad(in_job) if each.check == "scheduler"]
        assert finding.level is Level.PROBLEM
        assert "systemctl start jupyter-gpushare` on the node n1" in finding.remedy


@pytest.mark.promise("cli-10")
def test_a_node_with_another_version() -> None:
    """Users cannot restart the node's scheduler."""
    outdated = {**status()["scheduler"], "version": "0.9"}
    facts = machine_with("scheduler", status=status(scheduler=outdated))
    (finding,) = bad(dataclasses.replace(facts, job=SHARD))
    assert (finding.check, "node n1" in finding.remedy) == ("version", True)


@pytest.mark.promise("cli-10")
def test_a_limit_too_small_to_park() -> None:
    """2 GiB are on the device; a reserve of the limit stays free. Where the limit is wide enough,
    nothing is said."""
    narrow = {"path": "/job_7", "version": 2, "bytes_max": 2 * GIB, "bytes_used": GIB // 2}
    (finding,) = bad(dataclasses.replace(machine_with("cgroup", **narrow), job=SHARD))
    assert (finding.check, "1.2 GiB for parked GPU memory" in finding.what) == ("host-memory", True)
    assert "c.SlurmSpawner.req_memory" in finding.remedy
    wide = machine_with("cgroup", **{**narrow, "bytes_max": 3 * GIB})
    assert bad(dataclasses.replace(wide, job=SHARD)) == []


@pytest.mark.promise("cli-10")
def test_memory_of_others_asks_for_no_host_memory() -> None:
    """It is parked under the limits of their own jobs."""
    (tenant,) = status()["tenants"]
    hidden = [{**client, "pid": None} for client in tenant["clients"]]
    narrow = machine_with("cgroup", path="/job_7", version=2, bytes_max=2 * GIB, bytes_used=0)
    told = dataclasses.replace(narrow.scheduler, status=status(tenants=[{"clients": hidden}]))
    in_job = dataclasses.replace(narrow, scheduler=told, job=SHARD)
    assert "host-memory" not in {each.check for each in bad(in_job)}


class _Answers(http.server.BaseHTTPRequestHandler):
    status = 200
    date: str | None = None

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(timestamp) if self.date is None else self.date

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """The test's own output is enough."""


@pytest.fixture
def hub() -> Iterator[str]:
    """The address of something that answers."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hub/api"
        server.shutdown()


@pytest.mark.promise("cli-10")
def test_a_hub_that_answers(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it says of us: it can be reached. A proxy's error page is no hub."""
    for code, why in ((200, ""), (403, ""), (502, "the answer there is 502")):
        monkeypatch.setattr(_Answers, "status", code)
        answer = ask_hub({"JUPYTERHUB_API_URL": hub})
        assert (answer.address, answer.why_unreachable) == (hub, why)


@pytest.mark.promise("cli-10")
def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens, somebody listens and says nothing or rubbish, or there is no such place."""
    monkeypatch.setattr("jupyter_gpushare.cli.checkup.hub_address.ANSWER_S_MAX", 0.2)
    with socket.socket() as silent, socket.socket() as nobody:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        nobody.bind(("127.0.0.1", 0))
        for sock, words in ((silent, "timed out"), (nobody, "Connection refused")):
            url = f"http://127.0.0.1:{sock.getsockname()[1]}/hub/api"
            environ = {"JUPYTERHUB_USER": "alice", "JUPYTERHUB_API_URL": url}
            facts = hub_facts(environ)
            assert (facts.address, words in facts.unreachable) == (url, True), facts

    def no_such_name(*_: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    answer = ask_hub({"JUPYTERHUB_API_URL": "http://no.such.invalid/hub/api"})
    assert answer.why_unreachable == "Name or service not known"


@pytest.mark.promise(
    "cli-11",
    "The doctor says when the clocks of a machine and of its hub differ by more than 30 s",
)
@pytest.mark.parametrize(
    ("ahead_s", "words"), [(95, "95 s ahead of"), (-40, "40 s behind"), (9, "")]
)
def test_the_hubs_clock(
    hub: str, monkeypatch: pytest.MonkeyPatch, ahead_s: int, words: str
) -> None:
    """Its answer tells the time, in whole seconds; what lies between is no skew. The machine's own
    clock stands still here."""
    now_s = float(int(time.time()))
    monkeypatch.setattr(hub_address, "time", SimpleNamespace(time=lambda: now_s + 0.5))
    date = email.utils.formatdate(now_s - ahead_s, usegmt=True)
    monkeypatch.setattr(_Answers, "date", date)
    facts = hub_facts({"JUPYTERHUB_API_URL": hub})
    assert facts.clock_ahead_s == ahead_s
    found = bad(dataclasses.replace(HEALTHY, hub=facts))
    assert [each.check for each in found] == (["clock"] if words else [])
    assert all(words in each.what and "NTP" in each.remedy for each in found)


@pytest.mark.promise("cli-11")
@pytest.mark.parametrize("date", ["", "yesterday", "Thu, 99 Nov 2026 08:00:00 GMT"])
def test_a_hub_that_tells_no_time(hub: str, monkeypatch: pytest.MonkeyPatch, date: str) -> None:
    """Then nothing is said of clocks."""
    monkeypatch.setattr(_Answers, "date", date)
    facts = hub_facts({"JUPYTERHUB_API_URL": hub})
    assert facts.clock_ahead_s is None
    assert "clock" not in {each.check for each in findings(dataclasses.replace(HEALTHY, hub=facts))}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"JUPYTERHUB_API_URL": ""},
        {"JUPYTERHUB_API_URL": "rubbish"},
        {"JUPYTERHUB_API_URL": "https://h/hub/api", "JUPYTERHUB_SSL_KEYFILE": "/k"},
    ],
)
def test_no_hub_to_ask(environ: dict[str, str]) -> None:
    """Without an address nobody is asked, nor where the hub has certificates of its own."""
    assert ask_hub(environ) == HubAnswer()


def test_an_address_that_is_none() -> None:
    """It is told, and breaks nothing."""
    url = "http://h:port/hub/api"
    answer = ask_hub({"JUPYTERHUB_API_URL": url})
    assert answer.address == url and "port" in answer.why_unreachable.lower()
