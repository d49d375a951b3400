"""Which value of a setting counts, where several places give one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.configuration.checks import (
    notebooks_told,
    notebooks_with_shares,
    unseen,
)
from jupyter_gpushare.core.configuration.layers import Layers, read_values
from jupyter_gpushare.core.configuration.values import settings_as_json
from jupyter_gpushare.core.settings import SETTINGS, SchedulerSettings, SettingsError
from jupyter_gpushare.core.shares import guarantees
from jupyter_gpushare.core.shares.guarantees import Preset

seconds = st.dictionaries(st.sampled_from(["quantum_s", "overdue_s"]), st.integers(1, 99))


@pytest.mark.promise(
    "scheduler-42",
    "A setting's value comes from `set`, else from the settings file, else from the start, else it "
    "is the default; a new settings file takes back nothing that was set live, `unset` does",
)
@given(start=seconds, file=seconds, live=seconds, later=seconds)
def test_the_strongest_place_counts(start: Any, file: Any, live: Any, later: Any) -> None:
    """Whatever the places give, and whatever file comes later."""
    layers = Layers(start=start).with_file(file).with_live(live)
    for now, in_file in ((layers, file), (layers.with_file(later), later)):
        expected = {**start, **in_file, **live}
        assert now.settings() == SchedulerSettings().replace(**expected)
    for name in live:
        layers = layers.without_live(name)
    assert layers.settings() == SchedulerSettings().replace(**{**start, **file})


@pytest.mark.promise("scheduler-42")
def test_each_value_names_its_place_and_what_it_shadows() -> None:
    """The strongest of the shadowed ones first."""
    layers = Layers(start={"quantum_s": 2.0}).with_file({"quantum_s": 3.0})
    layers = layers.with_live({"quantum": "4s"})
    explained = layers.explained()
    assert list(explained) == [row.name for row in SETTINGS]
    assert explained["quantum_s"] == {
        "value": 4.0,
        "from": "set",
        "shadowed": [
            {"value": 3.0, "from": "file"},
            {"value": 2.0, "from": "start"},
            {"value": 0.0, "from": "default"},
        ],
    }
    assert explained["turns"] == {"value": "on", "from": "default", "shadowed": []}


@pytest.mark.promise("scheduler-42")
def test_one_entry_is_changed_and_taken_back() -> None:
    """The others stay. What is as it was without `set` comes from where it came before."""
    before = Layers().with_file({"limits": "ann=0.5, @staff=0.2"})
    changed = before.with_live({"limits": {"ben": "0.1", "@staff": None}})
    assert changed.settings().limits == "ann=0.5, ben=0.1"
    assert changed.with_live({"limits": {"ann": "0.4"}}).settings().limits == "ann=0.4, ben=0.1"
    assert (
        before.with_live({"limits": {"ann": "0.4"}}).with_live({"limits": {"ann": "0.5"}}).live
        == {}
    )
    for wrong in ({"a": 1}, {"a,b": "0.5"}, {"a": "0.5, b=0.5"}, {"a": "2"}, {"": "0.5"}):
        with pytest.raises(SettingsError, match=r"^limits: "):
            before.with_live({"limits": wrong})
    with pytest.raises(SettingsError, match="quantum_s cannot be"):
        before.with_live({"quantum_s": {"a": "1"}})


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({"quantm": 1}, "Did you mean quantum_s"),
        ({"quantum_s": -1}, "quantum_s is -1.0, which is outside"),
        ({"quantum_s": float("nan")}, "Give a finite number"),
        ({"quantum_s": 1, "quantum": 2}, "quantum_s is given twice"),
        ({"memory_cap_bytes": 1}, "cannot be changed while the scheduler runs"),
        ({"turns": ["on"]}, "turns cannot be"),
    ],
)
def test_what_is_wrong_is_refused_as_a_whole(written: dict[str, object], sentence: str) -> None:
    """With a sentence, and nothing changes."""
    layers = Layers(live={"overdue_s": 5.0})
    with pytest.raises(SettingsError, match=sentence):
        layers.with_live({"idle_ms": 7, **written})
    with pytest.raises(SettingsError):
        read_values(written)


def test_a_notebook_that_nobody_has_seen_yet_is_its_users() -> None:
    """Whatever the names of both are."""
    chosen = SchedulerSettings(memory_caps="ann:a:b=8GiB, zed:a=8GiB, urn:x=8GiB, @a:b=8GiB")
    found = unseen(chosen, is_user=lambda name: name in ("ann", "urn:x"), is_group=lambda _: False)
    assert found == {"memory_caps": ["zed:a", "@a:b"]}


@pytest.mark.promise(
    "scheduler-105",
    "Entries with which an earlier version gave notebooks shares count for nothing, one by one: "
    "the scheduler starts, log and doctor name them, and new ones are refused",
)
def test_shares_of_notebooks_count_for_nothing() -> None:
    """Their users' entries go on, and a new entry of a user does not stumble over them."""
    layers = Layers(start={"requests": "ann:a=0.9, ann=0.2, ben:b=0.8", "sharing": Preset.FIXED})
    in_force = layers.settings()
    assert guarantees.parse(in_force.requests) == {"ann": 0.2}
    named = notebooks_with_shares(settings_as_json(in_force))
    assert named == {"requests": ["ann:a", "ben:b"]}
    told = "these entries count for nothing: ann:a, ben:b (requests)."
    assert notebooks_told(named).endswith(told)
    changed = layers.with_live({"requests": {"cem": "0.3", "ben:b": None}})
    assert guarantees.parse(changed.settings().requests) == {"ann": 0.2, "cem": 0.3}
    assert notebooks_with_shares({"memory_caps": "ann:a=8GiB"}) == {}
    for wrong in ({"limits": {"ann:a": "0.1"}}, {"hard-limits": "ann:a=0.1"}):
        with pytest.raises(SettingsError, match=r"count for nothing: ann:a .*Take them out"):
            layers.with_live(wrong)


def test_a_setting_that_does_not_exist_cannot_be_unset() -> None:
    """One that was not set can: nothing changes."""
    assert Layers().without_live("quantum") == Layers()
    with pytest.raises(SettingsError, match="There is no setting"):
        Layers().without_live("colour")
