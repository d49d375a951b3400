"""setup(c) with `c.GPUShare.view = True`: the service of the view, and who may open it."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpushare.hub import setup
from jupyter_gpushare.hub import view as view_module
from jupyter_gpushare.hub.options import GPUShare, OptionError
from jupyter_gpushare.hub.view import ACCESS, OWN_TOKEN_FILE, TOKENS_FILE, own_name
from jupyter_gpushare.reports.node_tokens import read_tokens
from jupyter_gpushare.scheduler.report.options import report_options
from tests.hub.test_configure import hubs_services, role


@pytest.fixture
def c(tmp_path: Path) -> Config:
    config = Config()
    config.GPUShare.view = True
    config.GPUShare.view_dir = str(tmp_path / "view")
    return config


def service(c: Config, name: str) -> dict[str, Any]:
    (found,) = [each for each in hubs_services(c) if each["name"] == name]
    return found


def flags_of(c: Config, name: str = "gpushare") -> dict[str, str]:
    pairs = (each.partition("=") for each in service(c, name)["command"])
    return {flag: value for flag, _, value in pairs}


@pytest.mark.promise(
    "hub-26",
    "One more line is enough for the view: the hub starts it, users may open it, and the hub's own "
    "scheduler reports to it",
)
def test_one_line(c: Config, tmp_path: Path) -> None:
    """The scheduler has a token that the view knows, under the machine's name, and no other
    account may read either file."""
    setup(c)
    view = service(c, "gpushare-view")
    assert (view["url"], view["oauth_no_confirm"]) == ("http://127.0.0.1:10150", True)
    assert {"custom:gpushare:use", "custom:gpushare:admin"} == set(
        view["oauth_client_allowed_scopes"]
    )
    flags = flags_of(c)
    assert flags["--report-to"] == "http://127.0.0.1:10150/"
    own = Path(flags["--report-token-file"])
    tokens = Path(flags_of(c, "gpushare-view")["--tokens"])
    assert tokens == tmp_path / "view" / TOKENS_FILE
    assert read_tokens(tokens).name_of(own.read_text().strip()) == own_name()
    for path, mode in ((tmp_path / "view", 0o700), (own, 0o600), (tokens, 0o600)):
        assert path.stat().st_mode & 0o777 == mode
    if int(version("jupyterhub").partition(".")[0]) >= 6:
        assert ACCESS in c.JupyterHub.extra_user_scopes
    else:
        assert ACCESS in role(c, "user")["scopes"]
    assert report_options(
        to=flags["--report-to"],
        token_file=flags["--report-token-file"],
        ca_file="",
        platform=flags["--report-platform"],
    )


@pytest.mark.promise("hub-12")
def test_twice_and_after_a_restart(c: Config, tmp_path: Path) -> None:
    """Nothing changes, the token neither; one whose line is gone is made anew."""
    setup(c)
    once, own = repr(c), tmp_path / "view" / OWN_TOKEN_FILE
    token = own.read_text()
    setup(c)
    assert (repr(c), own.read_text()) == (once, token)
    (tmp_path / "view" / TOKENS_FILE).write_text("other " + "0" * 64 + "\n")
    setup(c)
    tokens = read_tokens(tmp_path / "view" / TOKENS_FILE)
    assert own.read_text() != token
    assert tokens.name_of(own.read_text().strip()) == own_name()
    assert {name for name, _ in tokens.lines} == {"other", own_name()}


def test_without_it(tmp_path: Path) -> None:
    """No service, no flag, no file."""
    c = Config()
    c.GPUShare.view_dir = str(tmp_path / "view")
    setup(c)
    assert [each["name"] for each in hubs_services(c)] == ["gpushare"]
    assert not any(flag.startswith("--report") for flag in flags_of(c))
    assert not (tmp_path / "view").exists()
    assert ACCESS not in str(c)


@pytest.mark.promise("hub-12")
def test_a_view_that_runs_elsewhere(c: Config, tmp_path: Path) -> None:
    """Its service is the administrator's; users may open it, and no token is made here."""
    theirs = {"name": "gpushare-view", "url": "http://view:10150", "oauth_no_confirm": False}
    c.JupyterHub.services = [{"name": "other"}, theirs]
    setup(c)
    found = service(c, "gpushare-view")
    assert (found["url"], found["oauth_no_confirm"]) == ("http://view:10150", False)
    assert "custom:gpushare:admin" in found["oauth_client_allowed_scopes"]
    assert not any(flag.startswith("--report") for flag in flags_of(c))
    assert not (tmp_path / "view").exists()
    assert ACCESS in str(c.JupyterHub)


@pytest.mark.parametrize("platform", ["slurm", "kubernetes"])
def test_where_nodes_have_schedulers_of_their_own(c: Config, platform: str) -> None:
    """The hub starts the view alone."""
    c.GPUShare.platform = platform
    setup(c)
    assert [each["name"] for each in hubs_services(c)] == ["gpushare-view"]


def test_port_flags_and_a_role_of_their_own(c: Config) -> None:
    """What the administrator chooses is in the command; a role `user` that is defined anew gets
    the right too."""
    c.GPUShare.view_port = 4321
    c.GPUShare.view_args = ["--metrics-token-file=/etc/token"]
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self"]}]
    setup(c)
    assert service(c, "gpushare-view")["url"] == "http://127.0.0.1:4321"
    assert flags_of(c)["--report-to"] == "http://127.0.0.1:4321/"
    assert flags_of(c, "gpushare-view")["--metrics-token-file"] == "/etc/token"
    assert {"self", ACCESS} <= set(role(c, "user")["scopes"])


def test_what_cannot_be_used(c: Config, tmp_path: Path) -> None:
    """Each with what to do."""
    (tmp_path / "view").mkdir(mode=0o755)
    with pytest.raises(OptionError, match=r"Others may read or write .*view, .* Run `chmod 700`"):
        setup(c)
    c.GPUShare.view_dir = str(tmp_path / "view" / "x")
    (tmp_path / "view" / "x").write_text("a file")
    with pytest.raises(OptionError, match=r"cannot be made: .* or name another"):
        setup(c)
    c.GPUShare.view_dir = "relative"
    with pytest.raises(OptionError, match="view_dir is 'relative', which is not an absolute path"):
        setup(c)
    c.GPUShare.view_port = 0
    with pytest.raises(OptionError, match=r"view_port cannot be 0\. Give a number from 1"):
        setup(c)


@pytest.mark.promise(
    "hub-27", "No container sees the tokens of nodes: a directory that is mounted there is refused"
)
def test_a_directory_that_containers_see(c: Config, tmp_path: Path) -> None:
    """Also by another name."""
    for seen in ("library", "run/tenants"):
        c.GPUShare.library_dir = str(tmp_path / "library")
        c.GPUShare.runtime_dir = str(tmp_path / "run")
        (tmp_path / seen).mkdir(parents=True)
        for inside in (tmp_path / seen, tmp_path / seen / "view"):
            c.GPUShare.view_dir = str(inside)
            with pytest.raises(OptionError, match=r"containers see .*\. Name a directory"):
                setup(c)
        link = tmp_path / f"link-{len(seen)}"
        link.symlink_to(tmp_path / seen)
        c.GPUShare.view_dir = str(link / "view")
        with pytest.raises(OptionError, match="containers see"):
            setup(c)


def test_the_directory_is_no_container_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers see the directory of the hook's copy: tokens lie elsewhere."""
    for uid in (0, 1000):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        options = GPUShare()
        assert options.kept_library_dir not in options.kept_view_dir.parents
        assert options.kept_library_dir != options.kept_view_dir


def test_a_machine_with_an_odd_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called as a node can be."""
    for name, shown in (("node-1.example.org", "node-1.example.org"), ("ä b", "hub"), ("", "hub")):
        monkeypatch.setattr(view_module.socket, "gethostname", lambda name=name: name)
        assert own_name() == shown
