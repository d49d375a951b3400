"""setup(c) where servers are pods: what it adds to KubeSpawner's configuration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpushare.hub import setup
from jupyter_gpushare.hub.options import OptionError
from jupyter_gpushare.hub.platforms.kubernetes import SEAT
from jupyter_gpushare.kubelet.seats import RESOURCE
from jupyter_gpushare.version import __version__
from tests.hub.test_configure import environment_of, hubs_services, role

GPU = {"nvidia.com/gpu": "1"}
SEATED = {**GPU, SEAT: "1"}
PROFILES: list[dict[str, Any]] = [
    {"display_name": "No GPU", "kubespawner_override": {"extra_resource_limits": {}}},
    {"display_name": "Shared GPU", "kubespawner_override": {"extra_resource_limits": GPU}},
    {
        "display_name": "Choose",
        "profile_options": {
            "gpu": {
                "choices": {
                    "mig": {
                        "kubespawner_override": {
                            "extra_resource_limits": {"nvidia.com/mig-1g.10gb": "1"}
                        }
                    }
                }
            }
        },
    },
]


@pytest.fixture
def c() -> Config:
    made = Config()
    made.GPUShare.platform = "kubernetes"
    return made


def limits_of(profile: dict[str, Any]) -> Any:
    return profile["kubespawner_override"]["extra_resource_limits"]


@pytest.mark.promise(
    "kubernetes-14",
    'With `platform = "kubernetes"`, each server that asks for a GPU of NVIDIA\'s gets a seat, '
    "and the hub starts no scheduler",
)
def test_a_seat_with_each_gpu(c: Config) -> None:
    """For all servers. Roles and scopes are as everywhere: nodes ask the hub whose a token is."""
    c.KubeSpawner.extra_resource_limits = dict(GPU)
    setup(c)
    assert c.KubeSpawner.extra_resource_limits == SEATED
    assert "custom:gpushare:use" in c.JupyterHub.custom_scopes
    assert "custom:gpushare:use!user" in repr(c.JupyterHub)
    assert role(c, "server")["scopes"]


@pytest.mark.promise("kubernetes-14")
def test_the_hubs_pod_has_no_scheduler(c: Config) -> None:
    """And servers are told no directory: a seat brings it, and without one there is none."""
    setup(c)
    assert hubs_services(c) == []
    ours = {k: v for k, v in environment_of(c).items() if k.startswith("GPUSHARE_")}
    assert ours == {"GPUSHARE_WITHOUT_HUB": "unshared", "GPUSHARE_HUB_VERSION": __version__}


@pytest.mark.promise("kubernetes-14")
def test_profiles(c: Config) -> None:
    """Only those with a GPU get a seat, also in a choice; what an administrator wrote stays."""
    c.KubeSpawner.profile_list = PROFILES
    setup(c)
    none, shared, choose = c.KubeSpawner.profile_list
    assert limits_of(none) == {}
    assert limits_of(shared) == SEATED
    mig = limits_of(choose["profile_options"]["gpu"]["choices"]["mig"])
    assert mig == {"nvidia.com/mig-1g.10gb": "1", SEAT: "1"}
    assert limits_of(PROFILES[1]) == GPU


@pytest.mark.promise("kubernetes-14")
@pytest.mark.parametrize("is_async", [False, True])
def test_profiles_by_a_function(c: Config, is_async: bool) -> None:
    """It is asked for each spawner, as before."""
    asked: list[object] = []

    def profiles(spawner: object) -> Any:
        asked.append(spawner)
        return PROFILES

    async def later(spawner: object) -> Any:
        return profiles(spawner)

    c.KubeSpawner.profile_list = later if is_async else profiles
    setup(c)
    made = asyncio.run(c.KubeSpawner.profile_list("the spawner"))
    assert limits_of(made[1]) == SEATED
    assert asked == ["the spawner"]


@pytest.mark.promise("hub-12")
def test_twice_and_with_a_seat_of_ones_own(c: Config) -> None:
    """The second call changes nothing, and a number of seats that is there stays."""
    c.KubeSpawner.extra_resource_limits = {**GPU, SEAT: "2"}
    c.KubeSpawner.profile_list = lambda spawner: PROFILES
    setup(c)
    once = repr(c)
    setup(c)
    assert repr(c) == once
    assert c.KubeSpawner.extra_resource_limits[SEAT] == "2"


def test_limits_that_are_added_to(c: Config) -> None:
    """`c.KubeSpawner.extra_resource_limits.update(…)` keeps what a spawner's class has itself."""
    c.KubeSpawner.extra_resource_limits.update(GPU)
    setup(c)
    added = c.KubeSpawner.extra_resource_limits.to_dict()["update"]
    assert added == SEATED


@pytest.mark.parametrize(
    ("name", "value"), [("settings", {"quantum_s": 5}), ("runtime_dir", "/run/x")]
)
def test_what_is_for_the_hubs_scheduler_is_refused(c: Config, name: str, value: object) -> None:
    """It would change nothing, for each node starts its own scheduler."""
    c.GPUShare[name] = value
    with pytest.raises(OptionError, match=rf"c.GPUShare.{name} is for a .* Remove it here, and"):
        setup(c)


def test_an_unknown_platform(c: Config) -> None:
    """The message names those that there are."""
    c.GPUShare.platform = "nomad"
    with pytest.raises(OptionError, match=r"cannot be 'nomad'. Use one of: .*kubernetes"):
        setup(c)


def test_one_name_for_a_seat() -> None:
    """The hub asks for the resource that the plugin has."""
    assert SEAT == RESOURCE
