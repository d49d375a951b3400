"""`status`, `queue` and `set` against a running scheduler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    ContextFailed,
    HoldChanged,
    HoldRequested,
    HostMemoryReported,
    MemoryKindsReported,
    QueuePosition,
    Settings,
    TurnGivenAway,
    TurnRecalled,
)
from jupyter_gpushare.scheduler.service.kinds import KINDS
from tests.cli.conftest import Command, command_at
from tests.support.hook_client import DEVICE, GIB, memory_reported
from tests.support.other_user import OTHER_UID, as_root_only
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.view_stand_in import ViewStandIn, token_file
from tests.support.waits import WAIT_S_MAX


@pytest.mark.promise("cli-20", "`jupyter gpushare status` tells who holds and who waits")
def test_status_says_who_holds_and_who_waits(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """The text names devices, holder, waiters, tenants and the settings that matter most."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        first.take_turn()
        second.ask()
        second.expect(QueuePosition)
        done = gpushare("status")
    assert done.returncode == 0
    assert "Scripted GPU" in done.stdout
    assert "held by first for" in done.stdout
    assert "1. second has waited for" in done.stdout
    assert "turns on, quantum 500 ms to 30.0 s" in done.stdout
    assert "NOTEBOOK" in done.stdout


@pytest.mark.promise("scheduler-63")
def test_status_says_whether_the_view_is_told(tmp_path: Path) -> None:
    """Since when, and while it is not, why and what to do."""
    token = token_file(tmp_path)
    with (
        ViewStandIn() as view,
        running_scheduler(
            tmp_path / "run", f"--report-to={view.url}", f"--report-token-file={token}"
        ) as scheduler,
    ):
        gpushare = command_at(scheduler.directory)
        scheduler.eventually(lambda status: status["scheduler"]["reports"]["ok"])
        assert f"reports to ws://127.0.0.1:{view.port}/" in gpushare("status").stdout
        assert ": ok, since 2" in gpushare("status").stdout
        view.fault = "hang up"
        scheduler.tenant("first")
        scheduler.eventually(lambda status: not status["scheduler"]["reports"]["ok"])
        assert ": not since 2" in gpushare("status").stdout
        assert "has ended the connection" in gpushare("status").stdout


@pytest.mark.promise("cli-21", "`jupyter gpushare status --json` tells all")
def test_status_as_json(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """`status --json` is all that the API tells."""
    with scheduler.joined("first") as first:
        first.take_turn()
        status = json.loads(gpushare("status", "--json").stdout)
    assert [tenant["name"] for tenant in status["tenants"]] == ["first"]
    assert status["devices"][0]["holders"][0]["name"] == "first"


@pytest.mark.promise("cli-22", "`jupyter gpushare queue` tells the order")
def test_queue_tells_the_order(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """Holder first, then who waits, in the order in which they will be served."""
    clients = [scheduler.joined(name) for name in ("a", "b", "c")]
    clients[0].take_turn()
    for client in clients[1:]:
        client.ask()
        client.expect(QueuePosition)
    lines = gpushare("queue").stdout.splitlines()
    assert [line.split(" for ")[0].strip() for line in lines[1:]] == [
        "held by a",
        "1. b has waited",
        "2. c has waited",
    ]
    for client in clients:
        client.close()


@pytest.mark.promise("jupyter-19")
def test_queue_tells_of_a_turn_kept_by_hand(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """Others see that a turn is held by hand, and for how much longer."""
    with scheduler.joined("a") as client:
        client.take_turn()
        client.send(HoldRequested(hold_ms=300_000))
        assert client.expect(HoldChanged).hold_ms == 300_000
        assert ", reserved by its user for 5 min more" in gpushare("queue").stdout
        client.send(TurnGivenAway())
        assert client.expect(HoldChanged).hold_ms == 0
        assert client.expect(TurnRecalled).cause == "released in the notebook"


@pytest.mark.promise(
    "cli-37", "Without a scheduler, a notebook or a GPU, the command line says so in plain words"
)
def test_nothing_is_there(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """And a bare `jupyter gpushare` prints its verbs."""
    *_, gpus, notebooks = gpushare("status").stdout.split("\n\n")
    assert gpus.startswith("The scheduler has found no GPU. The NVIDIA driver does not answer: ")
    assert gpus.endswith("Install it, or give this machine or this container access to the GPU.")
    assert notebooks == "No notebook uses a GPU.\n"
    bare, helped = gpushare(), gpushare("--help")
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, helped.stdout, "")
    assert "show GPUs, turns, notebooks and settings" in " ".join(bare.stdout.split())


@pytest.mark.promise("cli-22")
def test_queue_of_a_free_device(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """A device that nobody holds is free; without devices there is a sentence."""
    assert gpushare("queue").stdout.startswith("The scheduler has found no GPU. The NVIDIA driver")
    with scheduler.joined() as client:
        client.drop(client.take_turn().turn_id)
        scheduler.eventually(lambda s: not s["devices"][0]["holders"])
        assert "free" in gpushare("queue").stdout


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerUnderTest]:
    """One scheduler for tests that only change its settings."""
    with running_scheduler(tmp_path_factory.mktemp("lasting") / "run") as running:
        yield running


@pytest.fixture
def settings_as_new(lasting: SchedulerUnderTest) -> Iterator[SchedulerUnderTest]:
    """The same, with the settings that it began with."""
    before = lasting.status()["settings"]
    yield lasting
    lasting.client.change_settings(before)


@pytest.mark.promise(
    "cli-23",
    "`jupyter gpushare set` changes the quantum and turns, for running programs too",
)
@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["quantum", "5s"], "quantum_s", 5.0),
        (["quantum", "250ms"], "quantum_s", 0.25),
        (["quantum", "2m"], "quantum_s", 120.0),
        (["quantum_s", "3"], "quantum_s", 3.0),
        (["turns", "off"], "turns", "off"),
        (["idle", "100"], "idle_ms", 100),
        (["window", "0.05s"], "window_ms", 50),
        (["overdue-policy", "kill"], "overdue_policy", "kill"),
        (["clients-max", "10"], "clients_max", 10),
    ],
)
def test_set_changes_a_setting(
    settings_as_new: SchedulerUnderTest, arguments: list[str], name: str, value: object
) -> None:
    """Names and units as a person writes them; the scheduler has the new value afterwards."""
    done = command_at(settings_as_new.directory)("set", *arguments)
    assert done.returncode == 0, done.stderr
    assert settings_as_new.status()["settings"][name] == value
    assert done.stdout.splitlines()[0].split() == ["SETTING", "VALUE"]


@pytest.mark.promise("scheduler-51")
@pytest.mark.promise("cli-23")
def test_set_reaches_the_clients(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """A hook is told at once; several settings may be changed together."""
    with scheduler.joined() as client:
        client.expect(Settings)
        gpushare("set", "turns", "off", "idle", "70ms")
        changed = client.expect(Settings)
        assert (changed.turns, changed.idle_ms) == (0, 70)


def test_set_without_arguments_shows_all(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """All settings by their names, with units."""
    lines = gpushare("set").stdout.splitlines()
    assert ["quantum_max_s", "30s"] in [line.split() for line in lines]
    assert ["idle_ms", "50ms"] in [line.split() for line in lines]


@pytest.mark.promise("cli-23")
@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["set", "quantum"], 2, "has no value"),
        (["set", "speed", "1"], 2, "There is no setting 'speed'. Settings are: quantum_s"),
        (["set", "quantum", "soon"], 2, "quantum_s cannot be 'soon'. Write it like 5s"),
        (["set", "quantum", "9" * 400], 2, "Give a finite number"),
        (["set", "clients-max", "few"], 2, "Give a whole number"),
        (["set", "clients-max", "²"], 2, "Give a whole number"),
        (["set", "turns", "maybe"], 2, "Give one of: on, off"),
        (["set", "quantum-min", "0s"], 76, "outside 0.01 to 86400 seconds"),
    ],
)
def test_a_wrong_set_is_explained(
    settings_as_new: SchedulerUnderTest, arguments: list[str], status: int, sentence: str
) -> None:
    """What is wrong and what to do, on stderr, with a status of its own."""
    before = settings_as_new.status()["settings"]
    done = command_at(settings_as_new.directory)(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr
    assert settings_as_new.status()["settings"] == before


@pytest.mark.promise(
    "cli-24",
    "Every verb says in a sentence that there is no scheduler, and how to start one",
)
@pytest.mark.promise("bad-input-22")
@pytest.mark.parametrize("verb", [["status"], ["queue"], ["set"], ["run", "--", "true"]])
def test_without_a_scheduler(gpushare: Command, verb: list[str], fake_library: Path) -> None:
    """Every verb says that there is none and how to start one, with exit status 69."""
    done = gpushare(*verb, env={"GPUSHARE_LIBRARY": str(fake_library)})
    assert done.returncode == 69
    assert "Start one with `jupyter gpushare scheduler`" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_scheduler_of_a_hub(gpushare: Command) -> None:
    """Its user cannot start one in the hub's place, and is told whom to ask."""
    done = gpushare("status", env={"JUPYTERHUB_API_TOKEN": "alices"})
    assert done.returncode == 69
    assert "Ask the hub's administrator to look at its service `gpushare`." in done.stderr
    assert "Start one" not in done.stderr


@as_root_only
def test_a_squatted_socket_is_not_spoken_to(
    scheduler: SchedulerUnderTest, gpushare: Command, tmp_path: Path
) -> None:
    """A listener of another user gets no byte from us, and we say why."""
    squatter = tmp_path / "squatted"
    squatter.mkdir()
    squatter.chmod(0o777)
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); os.setuid(int(sys.argv[2]));"
        "s.bind(sys.argv[1]); s.listen(); print('ready', flush=True); c, _ = s.accept();"
        "print(len(c.recv(100)), flush=True)"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(tempfile.gettempdir()) and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o111)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(squatter / "http.sock"), str(OTHER_UID)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    done = gpushare("status", env={"GPUSHARE_RUNTIME_DIR": str(squatter)})
    assert done.returncode == 77
    assert "neither you nor root" in done.stderr
    assert process.communicate(timeout=WAIT_S_MAX)[0] == "0\n"


def test_help_names_all_verbs(gpushare: Command) -> None:
    """The overview lists what there is."""
    text = gpushare("--help").stdout
    for verb in ("scheduler", "status", "queue", "set", "run"):
        assert verb in text
    assert "--runtime-dir" in gpushare("scheduler", "--help").stdout


def test_a_failed_context_is_explained(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """After a sticky error the text says whose it is, what helps, and what that frees."""
    with scheduler.joined("broken") as broken:
        broken.send(
            memory_reported(DEVICE, 3 * GIB),
            ContextFailed(device=DEVICE, cu_result=710),
        )
        scheduler.eventually(lambda s: s["tenants"][0]["clients"][0]["devices"][0]["failed"])
        text = gpushare("status").stdout
    assert "broken met an error" in text
    assert "Restart it; that frees 3.0 GiB." in text
    assert [text.splitlines()[-3].split()[i] for i in (0, 3)] == ["broken", "failed"]


@pytest.mark.promise(
    "cli-25",
    "`jupyter gpushare status`, the panel and `%gpushare` tell which kinds of memory cannot be "
    "moved",
)
def test_memory_that_cannot_be_moved_is_told_by_kind(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """The largest first; all processes of a tenant together, and nothing of one that has gone."""
    told = {f"bytes_{kind}": 0 for kind in KINDS}
    with scheduler.joined("work") as work:
        work.send(
            memory_reported(DEVICE, 8 * GIB, fixed=3 * GIB),
            MemoryKindsReported(
                device=DEVICE,
                **{
                    **told,
                    "bytes_plain": 5 * GIB,
                    "bytes_managed": 2 * GIB,
                    "bytes_graphs": GIB,
                    "bytes_stopped": 4 * GIB,
                },
            ),
        )
        scheduler.eventually(lambda s: s["tenants"][0]["memory"][0].get("kinds"))
        (shown,) = scheduler.status()["tenants"][0]["memory"]
        assert shown["kinds"] == {
            "plain": 5 * GIB,
            "stopped": 4 * GIB,
            "graphs": GIB,
            "managed": 2 * GIB,
        }
        text = gpushare("status").stdout
    assert (
        "work has memory that cannot be moved: 4.0 GiB used by others, 2.0 GiB managed, 1.0 GiB "
        "of graphs." in text
    )
    assert "of these kinds" not in text
    scheduler.eventually(lambda s: not s["tenants"] or not s["tenants"][0]["memory"])


@pytest.mark.promise(
    "cli-26",
    "`jupyter gpushare status`, the panel and `%gpushare` tell of which kinds memory that can be "
    "moved is, where it is not all plain",
)
def test_memory_that_can_be_moved_is_told_by_kind(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """The largest first."""
    told = {f"bytes_{kind}": 0 for kind in KINDS}
    kinds = {"bytes_plain": GIB, "bytes_mapped": 5 * GIB, "bytes_pooled": 2 * GIB}
    with scheduler.joined("work") as work:
        work.send(
            memory_reported(DEVICE, 8 * GIB),
            MemoryKindsReported(device=DEVICE, **{**told, **kinds}),
        )
        scheduler.eventually(lambda s: s["tenants"][0]["memory"][0].get("kinds"))
        text = gpushare("status").stdout
    assert (
        "work has memory of these kinds: 5.0 GiB mapped, 2.0 GiB stream-ordered, 1.0 GiB plain."
        in text
    )


@pytest.mark.promise(
    "cli-27",
    "`jupyter gpushare status` tells parked memory apart from what is on the device",
)
def test_parked_memory_is_not_on_the_device(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """A tenant's memory is told apart from what of it is in host memory, and the device is not
    fuller for the latter."""
    with scheduler.joined("work") as work:
        work.send(memory_reported(DEVICE, 3 * GIB, parked=2 * GIB))
        scheduler.eventually(lambda s: s["tenants"][0]["memory"][0]["bytes_parked"])
        text = gpushare("status").stdout
    assert "1.0 GiB + 2.0 GiB parked" in text
    assert ": 1.0 GiB of " in text


def test_a_long_name_leaves_room_for_the_rest(
    scheduler: SchedulerUnderTest, gpushare: Command
) -> None:
    """Names are cut in the table, and whole in the queue; a UUID is written as everywhere."""
    name = "a notebook with a rather long name " * 2
    with scheduler.joined(name) as client:
        client.take_turn()
        lines = gpushare("status").stdout.splitlines()
    assert max(map(len, lines[5:])) <= 100
    assert any(name.strip() in line for line in lines)
    assert "(00010203-0405-0607-0809-0a0b0c0d0e0f)" in lines[3]


@pytest.mark.promise(
    "cli-28",
    "`jupyter gpushare status` says which notebook has parked memory that could not be pinned, and "
    "that a machine's host memory is slow to become ready",
)
def test_host_memory_that_is_slow_is_told(scheduler: SchedulerUnderTest, gpushare: Command) -> None:
    """Nothing of it where it is fast, and nothing once the process has gone."""
    with scheduler.joined("work") as work:
        for unpinned, rate, slow in ((0, 17 * 10**9, False), (3 * GIB, 2 * GIB, True)):
            work.send(
                HostMemoryReported(bytes_unpinned=unpinned, bytes_ready_per_s=rate),
                memory_reported(DEVICE, (8 + slow) * GIB, parked=4 * GIB),
            )
            scheduler.eventually(lambda s, rate=rate: s["host"]["bytes_ready_per_s"] == rate)
            status = scheduler.status()
            assert status["host"]["slow"] == slow
            assert status["tenants"][0]["bytes_unpinned"] == unpinned
            text = gpushare("status").stdout
            told = "work has 3.0 GiB parked in host memory that could not be pinned, so it moves"
            assert (told in text) == slow
            assert ("Host memory of this machine becomes ready at 2.0 GiB a second" in text) == slow
    scheduler.eventually(lambda s: s["host"] == {"bytes_ready_per_s": None, "slow": False})
