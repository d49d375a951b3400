"""`jupyter gpushare simulate`, as a person uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jupyter_gpushare.cli.main import main
from jupyter_gpushare.cli.simulation import rendered
from jupyter_gpushare.simulator.base.workload import Cell, Notebook, Workload
from jupyter_gpushare.simulator.summary import PolicyFigures

TRACE = [
    {"trace": 1, "title": "Monday", "devices": 1},
    {"notebook": "train", "owner": "ann"},
    {"notebook": "plot", "owner": "bob"},
    {"cell": "train", "at_s": 0, "work_s": 60},
    {"cell": "plot", "at_s": 5, "work_s": 0.5},
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    return path


@pytest.mark.promise(
    "cli-19", "`simulate` shows what other policies, settings and devices would do"
)
def test_a_trace_is_simulated(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with a row for each policy; nothing else is written where no terminal is."""
    assert main(["simulate", str(trace), "--policy", "ours, nvshare,ours"]) == 0
    captured = capsys.readouterr()
    head, _, title, *rows = captured.out.splitlines()
    assert head == "Monday: 2 cells in 2 notebooks of 2 owners, on 1 device of 80.0 GiB"
    columns = ["POLICY", "WAIT P50", "WAIT P95", "MAKESPAN", "WORK", "SWAP", "IDLE", "JAIN", "LAG"]
    assert re.split(r" {2,}", title) == columns
    assert [row.split()[0] for row in rows] == ["ours", "nvshare"]
    assert rows[1].split()[1:3] == ["25.0", "s"]
    assert captured.err == ""


@pytest.mark.promise("cli-19")
def test_settings_devices_and_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a shorter quantum everybody is nearer to what is due, and with two devices nobody
    waits."""
    long = {"cell": "plot", "at_s": 6, "work_s": 40}
    trace.write_text(trace.read_text() + json.dumps(long) + "\n")

    def figure(name: str, *options: str) -> float:
        assert main(["simulate", str(trace), "--json", *options]) == 0
        return float(json.loads(capsys.readouterr().out)["ours"][name])

    assert figure("lag_s_max", "--set", "quantum=1s") < 2
    assert 4 < figure("lag_s_max", "--set", "quantum=10s") < 20
    assert figure("makespan_s") == pytest.approx(100.5, abs=0.5)
    assert figure("makespan_s", "--devices", "2") == pytest.approx(60, abs=0.1)


def test_a_preset_is_simulated_with_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.svg"
    options = ["--preset", "lab", "--seed", "3", "--policy", "nvshare"]
    assert main(["simulate", *options, "--picture", str(path)]) == 0
    assert capsys.readouterr().out.startswith("lab, seed 3: ")
    assert path.stat().st_size > 10_000


@pytest.mark.promise("cli-19")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Name either files or a preset."),
        (["TRACE", "--preset", "lab"], "Name either files or a preset."),
        (["--preset", "labs"], "There is no preset 'labs'. Did you mean lab?"),
        (["TRACE", "--policy", "hours"], "There is no policy 'hours'. Did you mean ours?"),
        (["TRACE", "--policy", "zzz"], "Give one of: ours, nvshare, gemini,"),
        (["TRACE", "--devices", "0"], "--devices 0 is not from 1 to 10000."),
        (["TRACE", "--set", "quantum"], "--set quantum has no value."),
        (["TRACE", "--set", "quantum=-1"], "quantum_s is -1.0, which is outside"),
        (["TRACE", "--set", "quantums=1"], "There is no setting 'quantums'."),
        (["TRACE", "--picture", "x.jpg"], "neither SVG nor PNG"),
        (["TRACE", "--set", "turns=off"], "Simulate that with --policy timeslicing"),
        (["--preset", "lab", "--set", "memory_mode=off"], "would have to hold 240.0 GiB."),
        (["missing.json"], "missing.json cannot be read: No such file or directory."),
    ],
)
def test_wrong_use_is_refused(
    trace: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence on what is wrong and one on what to do, with exit status 2."""
    given = [str(trace) if option == "TRACE" else option for option in options]
    assert main(["simulate", *given]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.out == ""


@pytest.mark.promise("cli-19")
def test_a_trace_that_does_not_fit_is_refused(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notebook that is larger than a device, and one on a device that is not there."""
    for more, words in (
        ({"bytes": 80 << 30}, "uses 80.0 GiB, and a device has 78.4 GiB for notebooks"),
        ({"device": 1}, "runs on device 1, and there is 1 device (counted from 0)"),
    ):
        lines = [TRACE[0], {**TRACE[1], **more}, TRACE[3]]
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert main(["simulate", str(trace)]) == 2
        assert words in capsys.readouterr().err


def test_the_help_names_presets_and_policies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    text = capsys.readouterr().out
    for name in ("classroom", "lab", "overnight", "many-nodes", "nvshare", "timeslicing"):
        assert re.search(rf"^  {name} +\w", text, re.M), name


def test_refused_cells_are_told() -> None:
    figures = PolicyFigures(
        policy="ours",
        jain=1.0,
        lag_s_max=0.0,
        short_wait_s_p50=0.0,
        short_wait_s_p95=0.0,
        makespan_s=1.0,
        idle_while_eligible=0.0001,
        swap_share=0.25,
        work_share=0.5,
        cells=1,
        cells_failed=1,
    )
    workload = Workload(
        title="t", notebooks=[Notebook(name="a", owner="a")], cells=[Cell(0, 0.0, 1.0)]
    )
    text = rendered(workload, 1, [figures])
    assert "50.0 %  25.0 %  0.1 %" in text
    assert text.endswith("ours: 1 cells were refused their memory.")
