"""Each ABI version and stream variant has a wrapper of its own, which calls its own real function,
whichever way it was reached."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hook.fake_driver import DRIVER_VERSION, FakeDriver
from tests.hook.table import Entry, expected_for

# These do more than call the driver when all their arguments are zero, or answer in the fake
# driver: they have tests of their own.
NOT_CALLED = {"cuGetProcAddress", "cuGetProcAddress_v2"}
NOT_GATED = ("-", "look")
"""Calls that look up addresses pass the gate only where there is memory that can be moved."""
CUDA_ERROR_NOT_FOUND = 500
GATE_CANCELLED_RESULT = 800
OLDEST = dict.fromkeys(("dlsym", "dlopen", "dlmopen"), "GLIBC_2.17")
if platform.machine() == "x86_64":
    OLDEST = {"dlsym": "GLIBC_2.2.5", "dlopen": "GLIBC_2.2.5", "dlmopen": "GLIBC_2.3.4"}


@dataclass(frozen=True)
class Request:
    way: str
    name: str
    version: int = 0
    flags: int = 0
    calls: bool = True

    def __str__(self) -> str:
        return f"{self.way} {self.name} {self.version} {self.flags} {int(self.calls)}"


@dataclass(frozen=True)
class Answer:
    status: int
    result: int
    object_name: str


Ask = Callable[..., list[Answer]]


@pytest.fixture
def ask(program: Callable[..., Path], environment: dict[str, str]) -> Ask:
    """Sends requests to programs/ask.c, in one process."""
    asker = program("ask", "-ldl")

    def answers(requests: list[Request], **more: str) -> list[Answer]:
        text = "".join(f"{request}\n" for request in requests)
        done = subprocess.run(
            [asker],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={**environment, **more},
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        assert len(lines) == len(requests)
        return [Answer(int(status), int(result), name) for status, result, name in lines]

    return answers


def object_of(entry: Entry) -> str:
    return "libgpushare.so" if entry.wrapped else "libcuda.so.1"


def cuda_entries(table: list[Entry]) -> list[Entry]:
    return [entry for entry in table if not entry.is_nvml]


def gate_lines(trace: Path) -> list[list[str]]:
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [line.split()[1:4] for line in lines if line.startswith("gate ")]


@pytest.mark.promise("hook-41", "All ABI versions and both stream variants are reached by `dlsym`")
@pytest.mark.promise(
    "hook-42",
    "Every version and variant of a gated call passes the gate, and no other call does",
)
def test_dlsym_leads_to_each_functions_own_wrapper(
    ask: Ask, table: list[Entry], fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Every exported name, by dlsym: the right object has it, and it calls the function of the
    same name; gated ones say their own kind and variant."""
    entries = [entry for entry in cuda_entries(table) if entry.exported_name not in NOT_CALLED]
    answers = ask([Request("dlsym", entry.exported_name) for entry in entries])
    for entry, answer in zip(entries, answers, strict=True):
        assert answer.object_name == object_of(entry), entry.exported_name
        assert answer.result == fake_driver.results[entry.exported_name], entry.exported_name
    said = {"claim": "alloc"}  # no claim stands where memory does not follow the turn
    gated = [
        [e.exported_name, said.get(e.gate, e.gate), e.variant]
        for e in entries
        if e.gate not in NOT_GATED
    ]
    assert gate_lines(tmp_path / "trace") == gated
    assert len(gated) > 100


@pytest.mark.promise(
    "hook-43",
    "All ABI versions and both stream variants are reached by `cuGetProcAddress` and `_v2`",
)
@pytest.mark.parametrize("way", ["proc", "proc_no_status", "proc1"])
def test_proc_address_leads_to_the_version_and_variant_asked_for(
    way: str, ask: Ask, table: list[Entry], fake_driver: FakeDriver
) -> None:
    """Every (name, version, flags) of the headers, through both versions of cuGetProcAddress and
    with no place for the status: the wrapper of exactly that function."""
    entries = [e for e in cuda_entries(table) if e.version <= DRIVER_VERSION]
    requests = [
        Request(way, e.base, e.version, 2 * (e.variant == "per_thread"), e.base not in NOT_CALLED)
        for e in entries
    ]
    for request, answer in zip(requests, ask(requests), strict=True):
        entry = expected_for(table, request.name, request.version, request.flags)
        assert entry is not None
        assert answer.object_name == object_of(entry), request
        if request.calls:
            assert answer.result == fake_driver.results[entry.exported_name], request
        if way == "proc":
            assert answer.status == 0, request


@pytest.mark.promise(
    "hook-43",
)
def test_versions_between_two_lead_to_the_older(
    ask: Ask, table: list[Entry], fake_driver: FakeDriver
) -> None:
    """A request between two ABI versions gets the older, with the right stream variant."""
    requests = [
        Request("proc", "cuMemPrefetchAsync", version, flags)
        for version in (8000, 12010, 12020, 13000)
        for flags in (0, 1, 2)
    ]
    names = [
        *("cuMemPrefetchAsync", "cuMemPrefetchAsync", "cuMemPrefetchAsync_ptsz") * 2,
        *("cuMemPrefetchAsync_v2", "cuMemPrefetchAsync_v2", "cuMemPrefetchAsync_v2_ptsz") * 2,
    ]
    answers = ask(requests)
    assert [a.result for a in answers] == [fake_driver.results[name] for name in names]
    assert {a.object_name for a in answers} == {"libgpushare.so"}


@pytest.mark.promise(
    "hook-44",
    "A function that the driver lacks stays absent; one newer than the headers passes, and "
    "the log says so",
)
def test_what_is_absent_stays_absent(ask: Ask) -> None:
    """Unknown names, suffixed names, versions too old or too new, and names that only begin like
    one of ours are answered as the driver answers."""
    requests = [
        Request("proc", "cuNoSuchFunction", 12000),
        Request("proc", "cuLaunchKernel_ptsz", 12000),
        Request("proc", "cuLaunchKernel", 3000),
        Request("proc", "cuLaunchKernel", DRIVER_VERSION + 1),
        Request("dlsym", "cuLaunchKernelX"),
        Request("dlsym", "cuLaunchKerne"),
        Request("dlsym", "cu"),
    ]
    answers = ask(requests)
    assert [answer.object_name for answer in answers] == ["-"] * len(requests)
    assert [answer.status for answer in answers[:4]] == [1, 1, 2, 1]


@pytest.mark.promise(
    "hook-43",
)
def test_proc_address_found_through_itself_is_ours(ask: Ask) -> None:
    """cuGetProcAddress asked for cuGetProcAddress gives the wrapper, in both versions."""
    requests = [
        Request("proc", "cuGetProcAddress", version, 0, False) for version in (11030, 12000)
    ]
    assert [answer.object_name for answer in ask(requests)] == ["libgpushare.so"] * 2


@pytest.mark.promise("hook-45", "`GPUSHARE_DISABLE=1` takes the hook out")
def test_a_switched_off_hook_hands_out_the_driver(
    ask: Ask, table: list[Entry], fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """With GPUSHARE_DISABLE=1 dlsym and cuGetProcAddress answer with the driver's functions."""
    entries = [entry for entry in cuda_entries(table) if entry.exported_name not in NOT_CALLED]
    requests = [Request("dlsym", entry.exported_name) for entry in entries]
    requests.append(Request("proc", "cuLaunchKernel", 12000))
    answers = ask(requests, GPUSHARE_DISABLE="1")
    assert {answer.object_name for answer in answers} == {"libcuda.so.1"}
    assert not (tmp_path / "trace").exists()


@pytest.mark.promise("hook-42")
@pytest.mark.promise("hook-21")
def test_a_cancelled_call_never_reaches_the_driver(ask: Ask, table: list[Entry]) -> None:
    """Every gated call that is cancelled returns 800, and nothing that is not gated does."""
    entries = [entry for entry in cuda_entries(table) if entry.exported_name not in NOT_CALLED]
    answers = ask([Request("dlsym", e.exported_name) for e in entries], FAKE_CANCEL="1")
    for entry, answer in zip(entries, answers, strict=True):
        cancelled = answer.result == GATE_CANCELLED_RESULT
        assert cancelled == (entry.gate not in NOT_GATED), entry.exported_name


@pytest.mark.promise("hook-44")
def test_a_newer_version_passes_ungated_and_is_told_once(
    program: Callable[..., Path], environment: dict[str, str], tmp_path: Path
) -> None:
    """A version of a gated name that the headers do not know is called as it is, and the user is
    told once."""
    folder = tmp_path / "newer"
    folder.mkdir()
    source = folder / "libcuda.c"
    source.write_text(
        "static int launch_v99(void) { return 99; }\n"
        "int cuLaunchKernel(void) { return 1; }\n"
        "int cuGetProcAddress_v2(const char *name, void **function, int version,"
        " unsigned long long flags, int *status)"
        " { *function = (void *)launch_v99; *status = 0; return 0; }\n".replace("\\\n", "\n")
    )
    flags = ("-shared", "-fPIC", "-w", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1")
    subprocess.run(["cc", *flags, "-o", folder / "libcuda.so.1", source], check=True)
    done = subprocess.run(
        [program("ask", "-ldl")],
        input="proc cuLaunchKernel 13060 0 1\n" * 3,
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "LD_LIBRARY_PATH": str(folder)},
    )
    assert done.stdout == "0 99 libgpushare.so\n" * 3
    assert done.stderr.count("cuLaunchKernel") == 1
    assert "Install a newer jupyter-gpushare" in done.stderr


@pytest.mark.promise("hook-46", "Direct linking reaches the wrappers")
def test_direct_linking_reaches_wrappers_and_driver(
    program: Callable[..., Path],
    environment: dict[str, str],
    fake_driver: FakeDriver,
    tmp_path: Path,
) -> None:
    """A program linked to libcuda calls our wrapper of a gated function, which calls the driver,
    and the driver itself for what passes."""
    linked = program("linked", fake_driver.directory / "libcuda.so.1")
    run = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run([linked], **run, env=environment)
    expected = [fake_driver.results["cuLaunchKernel"], fake_driver.results["cuCtxGetCurrent"]]
    assert [int(word) for word in done.stdout.split()] == expected
    assert gate_lines(tmp_path / "trace") == [["cuLaunchKernel", "launch", "legacy"]]
    off = subprocess.run([linked], **run, env={**environment, "GPUSHARE_DISABLE": "1"})
    assert off.stdout == done.stdout
    assert len(gate_lines(tmp_path / "trace")) == 1


@pytest.mark.promise("hook-44")
def test_a_function_that_the_driver_lacks_is_not_found(
    program: Callable[..., Path],
    environment: dict[str, str],
    fake_driver: FakeDriver,
    tmp_path: Path,
) -> None:
    """A program linked to a newer driver than the machine has gets CUDA_ERROR_NOT_FOUND from the
    missing function, and lives."""
    folder = tmp_path / "older"
    folder.mkdir()
    source = folder / "libcuda.c"
    source.write_text("int cuCtxGetCurrent(void) { return 7; }")
    flags = ("-shared", "-fPIC", "-w", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1")
    subprocess.run(["cc", *flags, "-o", folder / "libcuda.so.1", source], check=True)
    linked = program("linked", fake_driver.directory / "libcuda.so.1")
    done = subprocess.run(
        [linked],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "LD_LIBRARY_PATH": str(folder)},
    )
    assert done.stdout.split() == [str(CUDA_ERROR_NOT_FOUND), "7"]


def test_exports_are_the_wrapped_names_and_no_more(surface: Path, table: list[Entry]) -> None:
    """The library exports what it wraps, what a kernel's Python calls, and three functions of the
    C library under the versions that programs ask for. Passing functions are found in the driver
    itself."""
    text = subprocess.run(
        ["nm", "-D", "--defined-only", surface], capture_output=True, text=True, check=True
    ).stdout
    symbols = {line.split()[-1] for line in text.splitlines() if line.split()[-2] != "A"}
    wrapped = {entry.exported_name for entry in table if entry.wrapped}
    ours = {name for name in symbols if name.startswith("gpushare_")}
    of_libc = {f"{name}@{version}" for name, version in OLDEST.items()}
    of_libc |= {f"{name}@@GLIBC_2.34" for name in OLDEST}
    assert symbols - wrapped - ours == of_libc
    assert wrapped <= symbols
