"""Notebooks and devices as people name them in a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.cli.errors import UsageError
from jupyter_gpushare.cli.naming import devices_named, tenant_named

TENANTS = [
    ("u1-1", "ann", "train.ipynb"),
    ("u1-2", "ann", "test.ipynb"),
    ("u2-1", "bob", "train.ipynb"),
    ("u2-2", "bob", "a:b.ipynb"),
    ("u3-1", "anna", "plot.ipynb"),
    ("other-1", "another user", "another user"),
]
DEVICES = [("a" * 32, "A100"), ("ab" * 16, "H100 PCIe"), ("c" * 32, "H100 SXM")]
STATUS: dict[str, Any] = {
    "tenants": [{"id": i, "owner": owner, "name": name} for i, owner, name in TENANTS],
    "devices": [{"id": i, "name": name} for i, name in DEVICES],
}


@pytest.mark.promise(
    "cli-14",
    "Notebooks are named like ann:train.ipynb and devices by number, UUID or name, where a "
    "beginning is enough; a name that fits none or several is refused with what there is",
)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ann:train.ipynb", "u1-1"),
        ("ann:tr", "u1-1"),
        ("bo:tr", "u2-1"),
        ("test.ipynb", "u1-2"),
        ("te", "u1-2"),
        ("bob:a:b", "u2-2"),
        ("a:b.ipynb", "u2-2"),
        ("u3-1", "u3-1"),
        ("anna:", "u3-1"),
    ],
)
def test_a_notebook_is_named(given: str, meant: str) -> None:
    """By owner and name, as far as that is needed."""
    assert tenant_named(STATUS, given)["id"] == meant


@pytest.mark.promise("cli-14")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "No notebook is called ''"),
        ("zoe:train.ipynb", "No notebook is called 'zoe:train.ipynb'. Look at"),
        (":train", "No notebook is called"),
        ("train.ipynb", r"may be ann:train.ipynb \(u1-1\), bob:train.ipynb \(u2-1\). Write more"),
        ("ann:t", r"may be ann:train.ipynb \(u1-1\), ann:test.ipynb \(u1-2\). Write more"),
        ("an", "may be"),
        ("other-1", "is another user's notebook. Ask an administrator."),
    ],
)
def test_none_or_several_notebooks(given: str, said: str) -> None:
    """What is meant is asked, never guessed."""
    with pytest.raises(UsageError, match=said):
        tenant_named(STATUS, given)


@pytest.mark.promise("cli-14")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("0", "a"),
        ("2", "c"),
        ("GPU-cccc", "c"),
        ("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "a"),
        ("A100", "a"),
        ("h100 p", "ab"),
        ("all", "aabc"),
    ],
)
def test_a_device_is_named(given: str, meant: str) -> None:
    """As nvidia-smi and the status write it."""
    found = devices_named(STATUS, given)
    ids = {"a": DEVICES[0][0], "ab": DEVICES[1][0], "c": DEVICES[2][0]}
    expected = list(ids.values()) if meant == "aabc" else [ids[meant]]
    assert [each["id"] for each in found] == expected


@pytest.mark.promise("cli-14")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("3", "There is no device '3'"),
        ("", "There is no device ''"),
        ("-1", "There is no device"),
        ("²", "There is no device"),
        ("H100", r"may be H100 PCIe \(abababab-.*, H100 SXM \("),
        ("gpu-ffff", "There is no device 'gpu-ffff'. Give a number"),
    ],
)
def test_none_or_several_devices(given: str, said: str) -> None:
    """Also where there is none at all."""
    with pytest.raises(UsageError, match=said):
        devices_named(STATUS, given)
    with pytest.raises(UsageError, match="There is no device"):
        devices_named({"devices": []}, "all")
