"""The classification of entry points is complete, and the recorded requests resolve in it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hook.conftest import SPEC
from tests.hook.table import Entry, expected_for

# cuda-python 12.8 asked for these one version before the headers date them; a driver answers such a
# request with "version not sufficient", so that there is nothing to resolve.
ASKED_TOO_EARLY = {
    *("cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory"),
    *("cuLogsRegisterCallback", "cuLogsUnregisterCallback"),
}

RECORDED = Path(__file__).parent / "data" / "driver-symbols.tsv"


def generate(spec: Path, headers: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SPEC / "generate.py", "--include", headers, "--output", output]
    return subprocess.run(
        [*map(str, command), "--spec", str(spec)], capture_output=True, text=True, check=False
    )


def recorded() -> list[dict[str, str]]:
    lines = [line for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


@pytest.mark.promise(
    "hook-47",
    "The interposition table comes from the versioned headers; every entry point is classified",
)
def test_every_entry_point_has_a_class(table: list[Entry]) -> None:
    """The table has all of cuda.h and nvml.h, each in a known class."""
    assert len([entry for entry in table if not entry.is_nvml]) >= 685
    assert len([entry for entry in table if entry.is_nvml]) >= 428
    assert {entry.kind for entry in table} == {"gate", "memory", "report", "lifecycle", "pass"}


@pytest.mark.promise(
    "hook-48",
    "An entry point that is not classified, or not rightly, fails the build",
)
def test_an_unclassified_entry_point_fails_the_build(headers: Path, tmp_path: Path) -> None:
    """A name of the headers that no rule has ends the generator with its name."""
    spec = tmp_path / "cuda_api.toml"
    text = (SPEC / "cuda_api.toml").read_text()
    assert text.count('"cuMemcpyPeerAsync", ') == 1
    spec.write_text(text.replace('"cuMemcpyPeerAsync", ', ""))
    done = generate(spec, headers, tmp_path / "out")
    assert done.returncode == 1
    assert "unclassified entry points: cuMemcpyPeerAsync." in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.promise("hook-48")
@pytest.mark.parametrize(
    ("name", "message"),
    [("cuMemcpyDtoX", "no header has: cuMemcpyDtoX."), ("cuInit", "cuInit is classified twice.")],
)
def test_a_wrong_name_fails_the_build(
    name: str, message: str, headers: Path, tmp_path: Path
) -> None:
    """A classified name that no header has, or that two rules have, ends the generator."""
    spec = tmp_path / "cuda_api.toml"
    text = (SPEC / "cuda_api.toml").read_text()
    spec.write_text(text.replace('"cuMemcpyPeerAsync", ', f'"cuMemcpyPeerAsync", "{name}", '))
    done = generate(spec, headers, tmp_path / "out")
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.promise(
    "hook-49",
    "Every entry point that frameworks were recorded to ask for is in the table",
)
def test_what_the_frameworks_asked_for_resolves(table: list[Entry]) -> None:
    """Every recorded request of cuGetProcAddress and dlsym has its entry in the table."""
    exported = {entry.exported_name for entry in table}
    missing = []
    for request in recorded():
        name = request["name"]
        if request["via"] == "dlsym":
            if name not in exported:
                missing.append(name)
        elif not expected_for(table, name, int(request["cuda_version"]), int(request["flags"])):
            missing.append(name)
    assert len(recorded()) > 700
    assert set(missing) == ASKED_TOO_EARLY


@pytest.mark.promise("hook-42")
@pytest.mark.promise(
    "hook-3",
)
@pytest.mark.promise("hook-4")
@pytest.mark.promise("hook-5")
@pytest.mark.promise("hook-21")
@pytest.mark.parametrize(
    ("gate", "names"),
    [
        (
            "launch",
            "cuLaunch cuLaunchGrid cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx "
            "cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunchHostFunc "
            "cuStreamAddCallback cuGraphLaunch cuGraphUpload cuMemcpy cuMemcpyAsync cuMemcpyPeer "
            "cuMemcpyPeerAsync cuMemcpy2D cuMemcpy3D cuMemcpy3DAsync cuMemcpyBatchAsync "
            "cuMemcpyHtoAAsync cuMemsetD8 cuMemsetD2D32Async cuMemPrefetchAsync "
            "cuMemPrefetchBatchAsync cuStreamWaitValue32 cuStreamWriteValue64 cuStreamBatchMemOp",
        ),
        ("sync", "cuMemcpyDtoH cuMemcpyAtoH"),
        (
            "claim",
            "cuMemAlloc cuMemAllocPitch cuMemAllocManaged cuMemAllocAsync cuMemAllocFromPoolAsync "
            "cuArrayCreate cuArray3DCreate cuMipmappedArrayCreate",
        ),
        (
            "-",
            "cuMemFree cuMemFreeAsync cuArrayDestroy cuMemRelease cuMemUnmap cuStreamDestroy "
            "cuCtxDestroy cuEventDestroy cuModuleUnload cuGraphExecDestroy cuStreamBeginCapture "
            "cuStreamEndCapture cuCtxSynchronize cuStreamSynchronize cuEventSynchronize "
            "cuMemAllocHost cuMemHostRegister cuGetProcAddress",
        ),
    ],
)
def test_what_is_gated_and_what_is_not(gate: str, names: str, table: list[Entry]) -> None:
    """All versions and variants of what must be gated are, and of what must not be are not."""
    for name in names.split():
        found = {entry.gate for entry in table if entry.base == name}
        assert found == {gate}, name


def test_a_wrapper_is_gate_real_record(generated: Path) -> None:
    """No generated wrapper is longer than fifteen lines."""
    for file_name in ("wrappers_cuda.c", "wrappers_nvml.c"):
        bodies = (generated / file_name).read_text().split("\n}\n")
        lengths = [len(body[body.rfind(") {\n") :].splitlines()) for body in bodies[:-1]]
        assert lengths
        assert max(lengths) <= 15
