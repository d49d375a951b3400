"""`c.GPUShare.platform = "slurm"`: what setup(c) adds for servers that are jobs of Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from traitlets import Unicode
from traitlets.config import Config

from jupyter_gpushare.hub import setup
from jupyter_gpushare.hub.options import ROOTS_RUNTIME_DIR, OptionError

pytest.importorskip("jupyterhub", reason="JupyterHub is not installed")
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import SimpleLocalProcessSpawner


class BatchSpawnerBase(SimpleLocalProcessSpawner):
    """As batchspawner has it, with what is looked at here."""

    req_memory = Unicode("").tag(config=True)


class SlurmSpawner(BatchSpawnerBase):
    req_gres = Unicode("").tag(config=True)


class OurSlurmSpawner(SlurmSpawner):
    """As a site may have it."""


@pytest.fixture
def c() -> Config:
    """Of a hub in front of Slurm."""
    config = Config()
    config.GPUShare.platform = "slurm"
    return config


def spawner(c: Config, kind: type[SlurmSpawner] = SlurmSpawner) -> Any:
    return kind(config=c)


@pytest.mark.promise(
    "hub-10",
    'With platform "slurm" servers ask for a shard and find the scheduler of their node; the hub '
    "starts none",
)
def test_three_lines_are_enough(c: Config) -> None:
    """A job asks for one shard, and its server looks where the systemd unit of the nodes serves."""
    setup(c)
    made = spawner(c)
    assert made.req_gres == "shard:1"
    assert made.req_memory == ""
    assert made.environment["GPUSHARE_RUNTIME_DIR"] == str(ROOTS_RUNTIME_DIR)
    assert made.environment["GPUSHARE_SCHEDULER_UID"] == "0"
    assert made.environment["GPUSHARE_WITHOUT_HUB"] == "unshared"
    assert "LD_PRELOAD" not in made.environment
    assert JupyterHub(config=c).services == []
    assert "custom:gpushare:use" in c.JupyterHub.custom_scopes


@pytest.mark.promise("hub-10")
def test_called_twice(c: Config) -> None:
    """The second call changes nothing."""
    c.Spawner.mem_limit = "2G"
    c.SlurmSpawner.environment = {"THEIRS": "1"}
    setup(c)
    once = repr(c)
    setup(c)
    assert repr(c) == once


@pytest.mark.promise("hub-10")
@pytest.mark.parametrize("section", ["SlurmSpawner", "BatchSpawnerBase", "Spawner"])
def test_memory_of_the_hub_is_asked_of_slurm(c: Config, section: str) -> None:
    """A limit that the hub has is one that Slurm knows: rounded up, and for subclasses too."""
    c[section].mem_limit = (1 << 30) + 1
    setup(c)
    assert spawner(c).req_memory == "1025M"
    assert spawner(c, OurSlurmSpawner).req_memory == "1025M"


@pytest.mark.promise("hub-10")
@pytest.mark.parametrize("limit", [None, 0, "rubbish", lambda spawner: 1 << 30])
def test_no_memory_is_asked_for_without_a_limit(c: Config, limit: object) -> None:
    """Where the hub has none, or one for each server, Slurm's own default counts."""
    c.Spawner.mem_limit = limit
    setup(c)
    assert "req_memory" not in c.SlurmSpawner


@pytest.mark.promise("hub-10")
@pytest.mark.parametrize("section", ["SlurmSpawner", "BatchSpawnerBase", "OurSlurmSpawner"])
def test_what_is_there_stays(c: Config, section: str) -> None:
    """Whatever class the administrator has configured, their entries count."""
    c[section].req_gres = "gpu:1"
    c[section].req_memory = "3G"
    c[section].environment = {"GPUSHARE_RUNTIME_DIR": "/theirs", "THEIRS": "1"}
    c.Spawner.mem_limit = "2G"
    setup(c)
    setup(c)
    made = spawner(c, OurSlurmSpawner)
    assert made.req_gres == "gpu:1"
    assert made.req_memory == "3G"
    assert made.environment["GPUSHARE_RUNTIME_DIR"] == "/theirs"
    assert {"THEIRS", "GPUSHARE_SCHEDULER_UID"} <= set(made.environment)


@pytest.mark.promise("hub-10")
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("--gres=gpu:2", {"req_memory"}),
        ("--exclusive --gpus-per-node 1", {"req_memory"}),
        ("--qos=x --mem-per-cpu=1G", {"req_gres"}),
        ("-G1 --mem 2G", set()),
        ("--qos=--gres", {"req_gres", "req_memory"}),
    ],
)
def test_what_sbatch_is_asked_in_its_own_words(c: Config, options: str, asked: set[str]) -> None:
    """Administrators who ask in req_options are not asked for."""
    c.Spawner.mem_limit = "2G"
    c.SlurmSpawner.req_options = options
    setup(c)
    assert {name for name in ("req_gres", "req_memory") if name in c.SlurmSpawner} == asked


def test_a_directory_of_their_own(c: Config) -> None:
    """The nodes' schedulers may serve elsewhere."""
    c.GPUShare.runtime_dir = Path("/srv/gpushare")
    setup(c)
    assert spawner(c).environment["GPUSHARE_RUNTIME_DIR"] == "/srv/gpushare"


def test_switched_off(c: Config) -> None:
    """Nothing is asked of Slurm for the sharing any more."""
    c.GPUShare.enabled = False
    setup(c)
    assert "SlurmSpawner" not in c
    assert spawner(c).environment["GPUSHARE_DISABLE"] == "1"


@pytest.mark.promise("hub-14")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("settings", {"quantum_s": 5}),
        ("scheduler_args", ["--debug"]),
        ("scheduler_environment", {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_what_is_for_a_scheduler_of_the_hub(c: Config, name: str, value: object) -> None:
    """It would change nothing, for the hub starts none: the message says where it belongs."""
    c.GPUShare[name] = value
    with pytest.raises(OptionError, match=f"c.GPUShare.{name} is for a scheduler.* put it into"):
        setup(c)


@pytest.mark.promise("hub-14")
def test_a_platform_that_does_not_exist(c: Config) -> None:
    c.GPUShare.platform = "slrum"
    with pytest.raises(OptionError, match=r"platform cannot be 'slrum'. Use one of: .*slurm"):
        setup(c)
