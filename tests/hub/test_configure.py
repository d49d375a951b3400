"""setup(c): what it adds to a hub's configuration, and what it leaves alone."""

from __future__ import annotations

import asyncio
import copy
import os
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpushare.hub import setup
from jupyter_gpushare.hub.options import ROOTS_RUNTIME_DIR, GPUShare, OptionError
from jupyter_gpushare.hub.places import LED_BY_THE_NODE, PLACES, SCHEDULERS_ELSEWHERE
from jupyter_gpushare.hub.platforms import PLATFORMS
from jupyter_gpushare.hub.roles import OWN_USE

pytest.importorskip("jupyterhub", reason="JupyterHub is not installed")
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner


@pytest.fixture
def c() -> Config:
    return Config()


def role(c: Config, name: str) -> dict[str, Any]:
    (found,) = [r for r in c.JupyterHub.load_roles if r["name"] == name]
    return dict(found)


def hubs_services(c: Config) -> list[dict[str, Any]]:
    """As the hub itself reads them."""
    return list(JupyterHub(config=c).services)


def environment_of(c: Config, spawner: type[LocalProcessSpawner] = LocalProcessSpawner) -> Any:
    return spawner(config=c).environment


@pytest.mark.promise(
    "hub-11",
    "Two lines are enough: the hub starts the scheduler as its service, and its servers find it",
)
def test_two_lines_are_enough(c: Config) -> None:
    """With nothing else configured, the hub starts the scheduler and its servers find it."""
    setup(c)
    (service,) = hubs_services(c)
    assert service["name"] == "gpushare"
    flags = {"scheduler", "--serve-all-users", "--hub", f"--hub-pid={os.getpid()}"}
    assert flags <= set(service["command"])
    directory = str(GPUShare().directory)
    assert f"--runtime-dir={directory}" in service["command"]
    environment = environment_of(c)
    assert environment["GPUSHARE_RUNTIME_DIR"] == directory
    assert environment["GPUSHARE_SCHEDULER_UID"] == str(os.getuid())
    assert environment["GPUSHARE_WITHOUT_HUB"] == "unshared"
    if os.getuid() == 0:
        assert directory == str(ROOTS_RUNTIME_DIR)


@pytest.mark.promise(
    "hub-12",
    "`setup(c)` may be called twice, chains hooks, and replaces nothing that the administrator "
    "has configured",
)
def test_called_twice(c: Config) -> None:
    """The second call changes nothing."""
    c.JupyterHub.services = [{"name": "theirs"}]
    setup(c)
    once = repr(c)
    setup(c)
    assert repr(c) == once


@pytest.mark.promise("hub-12")
def test_an_entry_after_setup_is_refused(c: Config) -> None:
    """It would change nothing; what was read before is as it was, and copies may be changed."""
    c.GPUShare.runtime_dir = "/somewhere"
    setup(c)
    once = repr(c)
    with pytest.raises(OptionError, match=r"c.GPUShare.enabled is set after setup\(c\).* Move"):
        c.GPUShare.enabled = False
    with pytest.raises(OptionError, match=r"c.GPUShare.admin_users is set after setup\(c\)"):
        c.GPUShare.admin_users.add("ann")
    assert repr(c) == once
    copied = copy.deepcopy(c)
    copied.GPUShare.enabled = False


@pytest.mark.promise("hub-12")
def test_what_is_there_stays(c: Config) -> None:
    """Services, roles, scopes and variables of the administrator are all still there."""
    c.JupyterHub.services.append({"name": "theirs"})
    c.JupyterHub.load_roles = [{"name": "theirs", "scopes": ["list:users"]}]
    c.JupyterHub.custom_scopes = {"custom:theirs": {"description": "theirs"}}
    c.Spawner.environment = {"THEIRS": "1"}
    setup(c)
    assert [s["name"] for s in hubs_services(c)] == ["theirs", "gpushare"]
    assert role(c, "theirs") == {"name": "theirs", "scopes": ["list:users"]}
    assert {"custom:theirs", "custom:gpushare:use"} <= set(c.JupyterHub.custom_scopes)
    assert environment_of(c)["THEIRS"] == "1"


@pytest.mark.promise("hub-16")
def test_switched_off(c: Config) -> None:
    """With `enabled` off only the scopes' names are there, without which the hub would fail at the
    tokens of servers that were started before; and new servers share nothing on their own."""
    c.JupyterHub.custom_scopes = {"custom:theirs": {"description": "theirs"}}
    c.Spawner.server_token_scopes = ["theirs"]
    c.GPUShare.enabled = False
    setup(c)
    assert set(c.JupyterHub) == {"custom_scopes"}
    assert {"custom:theirs", "custom:gpushare:use", "custom:gpushare:admin"} == set(
        c.JupyterHub.custom_scopes
    )
    assert c.Spawner.server_token_scopes == ["theirs"]
    ours = {k: v for k, v in environment_of(c).items() if k.startswith("GPUSHARE_")}
    assert ours == {"GPUSHARE_DISABLE": "1", "GPUSHARE_DISABLED_BY": "administrator"}


@pytest.mark.promise("hub-12")
def test_a_scheduler_of_their_own(c: Config) -> None:
    """A service of our name that somebody else has defined is left as it is."""
    theirs = {"name": "gpushare", "url": "http://127.0.0.1:1"}
    c.JupyterHub.services = [theirs]
    setup(c)
    assert hubs_services(c) == [theirs]


@pytest.mark.promise("hub-12")
def test_a_variable_of_their_own(c: Config) -> None:
    """A variable that the administrator has set for a spawner wins, in every way of setting it."""
    c.Spawner.environment.update({"GPUSHARE_SCHEDULER_UID": "77"})
    c.SimpleLocalProcessSpawner.environment = {"GPUSHARE_RUNTIME_DIR": "/theirs"}
    setup(c)
    setup(c)
    assert environment_of(c)["GPUSHARE_SCHEDULER_UID"] == "77"
    simple = environment_of(c, SimpleLocalProcessSpawner)
    assert simple["GPUSHARE_RUNTIME_DIR"] == "/theirs"


def test_a_spawner_class_with_its_own_environment(c: Config) -> None:
    """`c.SimpleLocalProcessSpawner.environment` hides that of `c.Spawner`, and has ours too."""
    c.SimpleLocalProcessSpawner.environment = {"THEIRS": "1"}
    setup(c)
    simple = environment_of(c, SimpleLocalProcessSpawner)
    assert {"THEIRS", "GPUSHARE_RUNTIME_DIR"} <= set(simple)


@pytest.mark.promise("hub-12")
def test_hooks_of_the_administrator_stay(c: Config) -> None:
    """pre_spawn_hook is not touched; a server_token_scopes hook is asked, and ours added once."""

    def hook(spawner: object) -> None: ...

    async def scopes(spawner: object) -> list[str]:
        return ["theirs"]

    c.Spawner.pre_spawn_hook = hook
    c.Spawner.server_token_scopes = scopes
    setup(c)
    setup(c)
    assert c.Spawner.pre_spawn_hook is hook
    assert asyncio.run(c.Spawner.server_token_scopes(None)) == ["theirs", OWN_USE]


@pytest.mark.promise("hub-12")
@pytest.mark.parametrize(
    ("given", "expected"),
    [(["theirs"], ["theirs", OWN_USE]), ([], []), (lambda spawner: ["x"], ["x", OWN_USE])],
    ids=["list", "nothing", "function"],
)
def test_scopes_of_the_servers_token(c: Config, given: Any, expected: list[str]) -> None:
    """Ours are added to the administrator's; none of theirs means the role `server`."""
    c.Spawner.server_token_scopes = given
    setup(c)
    found = c.Spawner.server_token_scopes
    assert (asyncio.run(found(None)) if callable(found) else found) == expected


@pytest.mark.promise(
    "hub-13",
    "Roles have least privilege: the service has no right at the hub, no server's token may "
    "administer",
)
def test_least_privilege(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users and servers get the use of the GPU for themselves; the service gets no right at all;
    only named administrators may administer."""
    monkeypatch.setattr("jupyter_gpushare.hub.configure.version", lambda name: "6.0.0")
    c.Authenticator.admin_users = {"root"}
    c.PAMAuthenticator.admin_users = {"also"}
    setup(c)
    assert c.JupyterHub.extra_user_scopes == {OWN_USE}
    assert role(c, "server")["scopes"] == [
        "users:activity!user",
        "access:servers!server",
        OWN_USE,
    ]
    assert role(c, "gpushare-admin") == {
        "name": "gpushare-admin",
        "scopes": ["custom:gpushare:admin"],
        "users": ["also", "root"],
    }
    assert not any("services" in r for r in c.JupyterHub.load_roles)
    assert "admin" not in {r["name"] for r in c.JupyterHub.load_roles}


@pytest.mark.promise("hub-13")
def test_roles_that_somebody_has_changed(c: Config) -> None:
    """Their scopes stay, ours are added; a role `user` that is defined anew has ours in it,
    because the hub then reads no extra_user_scopes."""
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", "theirs"]},
        {"name": "server", "scopes": ["inherit"]},
    ]
    setup(c)
    assert role(c, "user")["scopes"] == ["self", "theirs", OWN_USE]
    assert role(c, "server")["scopes"] == ["inherit", OWN_USE]
    assert "extra_user_scopes" not in c.JupyterHub


def test_an_older_hub(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before JupyterHub 6 the role `user` is defined with what it had and ours."""
    monkeypatch.setattr("jupyter_gpushare.hub.configure.version", lambda name: "5.3.0")
    setup(c)
    assert role(c, "user")["scopes"] == ["self", OWN_USE]
    assert "extra_user_scopes" not in c.JupyterHub


def test_an_authenticator_that_manages_roles(c: Config) -> None:
    """Such a hub refuses roles that name members, so ours names none."""
    c.Authenticator.manage_roles = True
    c.Authenticator.admin_users = {"root"}
    setup(c)
    assert "users" not in role(c, "gpushare-admin")


@pytest.mark.promise("hub-13")
def test_chosen_administrators(c: Config) -> None:
    """c.GPUShare names users and groups instead of the hub's administrators."""
    c.Authenticator.admin_users = {"root"}
    c.GPUShare.admin_users = ["gpu-desk"]
    c.GPUShare.admin_groups = {"staff"}
    setup(c)
    assert role(c, "gpushare-admin")["users"] == ["gpu-desk"]
    assert role(c, "gpushare-admin")["groups"] == ["staff"]


def test_options_of_the_scheduler(c: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags and variables go to the scheduler; it sees the devices that the hub sees."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    c.GPUShare.runtime_dir = Path("/somewhere")
    c.GPUShare.scheduler_args = ["--quantum=5"]
    c.GPUShare.scheduler_environment = {"NUMBER": 1}
    setup(c)
    (service,) = hubs_services(c)
    assert service["command"][-2:] == ["--runtime-dir=/somewhere", "--quantum=5"]
    assert service["environment"]["CUDA_VISIBLE_DEVICES"] == "3"
    assert service["environment"]["NUMBER"] == "1"


def test_settings_of_the_scheduler(c: Config) -> None:
    """They are named as everywhere, and reach the scheduler as its flags."""
    c.GPUShare.settings = {"quantum_s": "5s", "visibility": "users", "memory_cap_bytes": "4GiB"}
    setup(c)
    (service,) = hubs_services(c)
    flags = ["--quantum_s=5s", "--visibility=users", "--memory_cap_bytes=4GiB"]
    assert service["command"][-3:] == flags


def test_lists_may_be_added_to(c: Config) -> None:
    """As with the traits of the hub's own classes."""
    c.GPUShare.scheduler_args.append("--debug")
    c.GPUShare.admin_groups.add("staff")
    setup(c)
    (service,) = hubs_services(c)
    assert service["command"][-1] == "--debug"
    assert role(c, "gpushare-admin")["groups"] == ["staff"]


@pytest.mark.promise(
    "hub-14", "A wrong entry of `c.GPUShare` stops the hub, with what is wrong and what to do"
)
@pytest.mark.parametrize(
    ("name", "value", "sentences"),
    [
        ("runtime_dri", "/x", "There is no c.GPUShare.runtime_dri. Did you mean runtime_dir?"),
        ("colour", "red", "There is no c.GPUShare.colour. Use one of: admin_groups"),
        ("runtime_dir", "relative", "which is not an absolute path. Give"),
        ("runtime_dir", 7, "c.GPUShare.runtime_dir cannot be 7. Give a path"),
        ("enabled", "no", "c.GPUShare.enabled cannot be 'no'. Give True or False."),
        ("scheduler_args", "--debug", "scheduler_args cannot be '--debug'. Give a list of flags"),
        ("scheduler_args", [5], "scheduler_args cannot be .5.. Give a list of flags"),
        ("admin_users", "root", "admin_users cannot be 'root'. Give a list of user names"),
        ("settings", {"quantm": 5}, "settings: There is no setting 'quantm'. Did you mean quan"),
        ("settings", {"quantum": -5}, "settings: quantum_s is -5.0, which is outside 0 to"),
        ("settings", {"memory_cap_bytes": "x"}, "memory_cap_bytes cannot be 'x'. Write it like"),
        ("scheduler_args", ["--visibilty=everyone"], "Did you mean --visibility?"),
        ("scheduler_args", ["--GPUShareScheduler.quantm=5"], "no --GPUShareScheduler.quantm."),
        ("scheduler_args", ["--quantum=-5"], "scheduler_args: quantum_s is -5.0, which is outside"),
    ],
)
def test_what_cannot_be_used(c: Config, name: str, value: object, sentences: str) -> None:
    """A wrong entry says what is wrong and what to do; the configuration is as it was."""
    c.GPUShare[name] = value
    before = repr(c)
    with pytest.raises(OptionError, match=sentences):
        setup(c)
    assert repr(c) == before


def test_each_place_has_its_part() -> None:
    """What the option may name is what there is a function for."""
    assert sorted(PLATFORMS) == list(PLACES)
    assert LED_BY_THE_NODE <= SCHEDULERS_ELSEWHERE < set(PLACES)
