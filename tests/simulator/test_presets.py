"""Presets are what their words and docs/scheduling.md say."""

from __future__ import annotations

import dataclasses
import re
import statistics
from pathlib import Path

import pytest

from jupyter_gpushare.simulator.base.workload import GIB, placed
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.fit import check
from jupyter_gpushare.simulator.presets import PRESETS, WORK_S_MAX

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scheduling.md"


@pytest.mark.promise("simulator-9", "A preset is the same for the same seed, and docs describe it")
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_comes_from_its_seed(name: str) -> None:
    """One seed, one workload; another seed, another one. It fits on its devices."""
    preset = PRESETS[name]
    first = preset.workload(name, 1)
    assert first == preset.workload(name, 1)
    assert first.cells != preset.workload(name, 2).cells
    assert [cell.at_s for cell in first.cells] == sorted(cell.at_s for cell in first.cells)
    check(first, devices=first.devices, world=World(device_bytes=first.device_bytes))


def test_the_lab_needs_three_times_its_memory() -> None:
    lab = PRESETS["lab"].workload("lab", 1)
    assert len({each.owner for each in lab.notebooks}) == 8
    assert sum(each.bytes_used for each in lab.notebooks) == 3 * lab.device_bytes


def test_the_classroom_runs_short_cells() -> None:
    classroom = PRESETS["classroom"].workload("classroom", 1)
    works = [cell.work_s for cell in classroom.cells]
    assert len(classroom.notebooks) == 40
    assert statistics.median(works) == pytest.approx(0.3, rel=0.1)
    assert max(works) <= WORK_S_MAX


def test_many_nodes_has_a_thousand_devices_of_equal_load() -> None:
    many = PRESETS["many-nodes"].workload("many-nodes", 1)
    places = placed(many.notebooks, many.devices)
    assert {places.count(device) for device in range(0, 1000, 50)} == {3}


def test_overnight_has_programs_and_people() -> None:
    overnight = PRESETS["overnight"].workload("overnight", 1)
    programs = [each for each in overnight.notebooks if each.is_program]
    assert (len(programs), len(overnight.notebooks) - len(programs)) == (8, 6)
    works = [c.work_s for c in overnight.cells if overnight.notebooks[c.notebook].is_program]
    assert len(works) == 8 and min(works) >= 3600 and max(works) <= 7200


@pytest.mark.promise("simulator-9")
@pytest.mark.parametrize("name", PRESETS)
def test_the_page_has_the_parameters(name: str) -> None:
    """docs/scheduling.md has a row for each preset with all its figures."""
    section = PAGE.read_text().split("## Presets")[1].split("\n## ")[0]
    (row,) = (line for line in section.splitlines() if line.startswith(f"| `{name}` |"))
    figures = {float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*(?:\.\d+)?", row)}
    preset = PRESETS[name]
    people = (preset.people, preset.jobs, *preset.mine)
    parts = [dataclasses.asdict(each) for each in people if each is not None]
    told = (v for part in parts for v in part.values() if not isinstance(v, str | bool))
    wanted = {float(v) for v in told if v}
    wanted |= {preset.devices, preset.device_gib, preset.lasts_s}
    assert wanted <= figures, f"the row lacks {wanted - figures}"
    assert (f"| `{preset.weights}` |" if preset.weights else "| none |") in row
    assert GIB == 2**30
