"""The picture of simulations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpushare.simulator import picture
from jupyter_gpushare.simulator.base.errors import SimulationError

from .scenes import notebook, simulated, workload


@pytest.mark.promise(
    "simulator-8", "A picture shows who had each device, and how long cells waited"
)
@pytest.mark.parametrize("suffix", [pytest.param(".svg", marks=pytest.mark.full), ".png"])
def test_a_picture_is_drawn(tmp_path: Path, suffix: str) -> None:
    """For policies that give a device to one at a time and for those that do not, with more
    owners than colours."""
    notebooks = [notebook(f"n{number}", gib=30) for number in range(25)]
    scene = workload(notebooks, [(i % 25, float(i), 2.0) for i in range(50)], devices=2)
    path = tmp_path / f"picture{suffix}"
    runs = [picture.Drawn(name, simulated(name, scene)) for name in ("ours", "timeslicing")]
    picture.check(path)
    picture.draw(path, scene, runs, devices=2)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert suffix == ".png" or data.rstrip().endswith(b"</svg>")


@pytest.mark.promise("simulator-8")
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another kind of file, a folder that is not there, and no matplotlib."""
    with pytest.raises(SimulationError, match="neither SVG nor PNG"):
        picture.check(tmp_path / "picture.jpg")
    with pytest.raises(SimulationError, match="no folder"):
        picture.check(tmp_path / "missing" / "picture.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SimulationError, match=r"pip install 'jupyter-gpushare\[simulate\]'"):
        picture.check(tmp_path / "picture.svg")


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    scene = workload([notebook("a")], [(0, 0.0, 1.0)])
    path = tmp_path / "folder.svg"
    path.mkdir()
    with pytest.raises(SimulationError, match="cannot be written"):
        picture.draw(path, scene, [picture.Drawn("ours", simulated("ours", scene))], devices=1)
