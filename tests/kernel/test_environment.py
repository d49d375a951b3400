"""The environment of a tenant: what is added, kept and taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import (
    FRAMEWORK_SETTINGS,
    SHIM_DIR,
    SHIM_MODULE,
    LibraryMissing,
    library_path,
    python_environment,
    tenant_environment,
    without_gpushare,
)

HOOK = "/opt/gpushare/libgpushare.so"


def tenant(base: dict[str, str], token: str = "a") -> dict[str, str]:
    return tenant_environment(base, socket="/run/hook.sock", token=token, library=HOOK)


@pytest.mark.promise("bad-input-5")
@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, HOOK),
        ("", HOOK),
        ("/lib/a.so", f"/lib/a.so:{HOOK}"),
        ("/lib/a.so /lib/b.so", f"/lib/a.so:/lib/b.so:{HOOK}"),
        (f"{HOOK}:/lib/a.so", f"/lib/a.so:{HOOK}"),
        ("/elsewhere/libgpushare.so", HOOK),
    ],
)
def test_the_hook_goes_behind_what_the_user_preloads(own: str | None, expected: str) -> None:
    """An own LD_PRELOAD stays and comes first; the hook is there once, and no other copy of it."""
    base = {} if own is None else {"LD_PRELOAD": own}
    assert tenant(base)["LD_PRELOAD"] == expected


def test_a_restart_changes_only_the_token() -> None:
    """Applied to its own result, the environment differs in the token alone."""
    once = tenant({"LD_PRELOAD": "/lib/a.so"})
    assert tenant(once, token="b") == {**once, "GPUSHARE_TOKEN": "b"}


@pytest.mark.promise(
    "kernels-1",
    "Kernels get the settings under which JAX, TensorFlow and NCCL take only the memory that they "
    "use, unless the user set them",
)
def test_frameworks_take_only_what_they_use() -> None:
    """JAX, TensorFlow and NCCL are told how to live with memory that follows the turn."""
    env = tenant({})
    assert env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert env["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert env["NCCL_GRAPH_REGISTER"] == "0"


@pytest.mark.promise("kernels-1")
@pytest.mark.parametrize("name", FRAMEWORK_SETTINGS)
def test_what_the_user_told_a_framework_stays(name: str) -> None:
    """A user's own setting of a framework is not changed, be it empty."""
    assert tenant({name: "mine"})[name] == "mine"
    assert tenant({name: ""})[name] == ""


def test_the_given_environment_is_left_alone() -> None:
    """The functions are pure: what they are given does not change."""
    base = {"LD_PRELOAD": "/lib/a.so", "PYTHONPATH": "/own"}
    before = dict(base)
    python_environment(tenant(base), notice="n")
    without_gpushare(base)
    assert base == before


@pytest.mark.parametrize("own", [None, "/own", "/own:/more", ":/own"])
def test_the_shim_comes_first_and_the_own_pythonpath_stays(own: str | None) -> None:
    """PYTHONPATH is the shim folder and then, unchanged, what the user had."""
    base = {} if own is None else {"PYTHONPATH": own}
    expected = str(SHIM_DIR) if own is None else f"{SHIM_DIR}:{own}"
    once = python_environment(base)
    assert once["PYTHONPATH"] == expected
    assert python_environment(once) == once


def test_everything_added_can_be_taken_away() -> None:
    """What is started without gpushare has the user's environment; all that is left of a tenant's
    is what frameworks were told, which nobody can tell from a user's own word."""
    base = {"LD_PRELOAD": "/lib/a.so", "PYTHONPATH": "/own", "GPUSHARE_LOG": "debug", "X": "1"}
    assert without_gpushare(python_environment(tenant(base), notice="n")) == {
        **FRAMEWORK_SETTINGS,
        **base,
    }


@pytest.mark.promise("jupyter-50")
def test_jupyters_default_provisioner_is_not_inherited() -> None:
    """In an environment without our entry point, that variable would hide every kernelspec."""
    env = {"JUPYTER_DEFAULT_PROVISIONER_NAME": "gpushare-provisioner"}
    assert "JUPYTER_DEFAULT_PROVISIONER_NAME" not in tenant(env)
    assert without_gpushare(env) == {}


def test_the_shim_folder_holds_the_bootstrap_alone() -> None:
    """Whatever else lay there would shadow modules of the user."""
    names = {path.name for path in SHIM_DIR.iterdir()} - {"__pycache__"}
    assert names == {f"{SHIM_MODULE}.py"}


@pytest.mark.promise("bad-input-46")
def test_a_missing_library_is_named_with_what_to_do(tmp_path: Path) -> None:
    """A library that is not there is reported before ld.so could complain on every start."""
    with pytest.raises(LibraryMissing, match=r"gone\.so does not exist\. Correct GPUSHARE_LIBRARY"):
        library_path({"GPUSHARE_LIBRARY": str(tmp_path / "gone.so")})


def test_a_library_that_cannot_be_named_is_refused(tmp_path: Path) -> None:
    """LD_PRELOAD has no way to quote a space."""
    library = tmp_path / "with space" / "libgpushare.so"
    library.parent.mkdir()
    library.touch()
    with pytest.raises(LibraryMissing, match="space or a colon"):
        library_path({"GPUSHARE_LIBRARY": str(library)})


def test_a_relative_library_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel may start in another folder than the server."""
    monkeypatch.chdir(tmp_path)
    Path("mine.so").touch()
    assert library_path({"GPUSHARE_LIBRARY": "mine.so"}) == tmp_path / "mine.so"
    assert os.path.isabs(library_path({"GPUSHARE_LIBRARY": "mine.so"}))  # noqa: PTH117
