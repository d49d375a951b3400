"""The messages between a node and the view: what is written is read again, and nothing else is."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpushare.reports.format import (
    DEVICES_MAX,
    MESSAGE_BYTES_MAX,
    TENANTS_MAX,
    TEXT_CHARACTERS_MAX,
    Message,
    NodeHello,
    Report,
    ReportError,
    characters_of,
    message_of,
    text_of,
)
from tests.reports.rows import (
    BOOT,
    a_device,
    a_node,
    a_report,
    a_tenant,
    devices,
    messages,
    reports,
    tenants,
)

A_SENTENCE = r"^[A-Z].*\. [A-Z].*\.$"


def plain(report: Report) -> dict[str, Any]:
    found = json.loads(text_of(report))
    assert isinstance(found, dict)
    return found


def refused(said: object) -> str:
    """The sentence with which a message is refused."""
    with pytest.raises(ReportError, match=A_SENTENCE) as error:
        message_of(said if isinstance(said, str) else json.dumps(said))
    return str(error.value)


@pytest.mark.promise(
    "view-13", "What a node writes, the view reads; what a newer one adds is passed over"
)
@given(messages)
def test_what_is_written_is_read(message: Message) -> None:
    """Text and bytes alike, to the last field."""
    assert message_of(text_of(message)) == message
    assert message_of(text_of(message).encode()) == message


@pytest.mark.promise("view-13")
@given(reports)
def test_what_a_newer_node_adds(report: Report) -> None:
    """Unknown fields, at every level, change nothing."""

    def with_more(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() & {"boot", "tenant", "owner", "mode", "sum_s"}:
            value = {**value, "new_in_2": [1, {"a": None}]}
        if isinstance(value, dict):
            return {key: with_more(each) for key, each in value.items()}
        return [with_more(each) for each in value] if isinstance(value, list) else value

    assert message_of(json.dumps(with_more(plain(report)))) == report


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


@pytest.mark.promise(
    "bad-input-51",
    "A message of a node that cannot be read, of whatever bytes: refused with a sentence, and "
    "nothing else happens",
)
@given(st.text(max_size=200) | st.binary(max_size=200))
@example("[" * 200_000)
@example(b"\xff\xfe{}")
@example('{"type": ["hello"]}')
@example('{"type": "hello", "type": NaN}')
def test_garbage(text: str | bytes) -> None:
    """Nothing but a ReportError comes out."""
    with pytest.raises(ReportError, match=A_SENTENCE):
        message_of(text)


@pytest.mark.promise("bad-input-51")
@given(reports, st.data())
@example(a_report(), None)
def test_a_wrong_value_anywhere(report: Report, data: st.DataObject | None) -> None:
    """One value of a good report is replaced by anything: it is refused, or read within bounds."""
    found = plain(report)
    if data is None:
        found["sent_at"] = 10**400
    else:
        _replace_one(found, data)
    try:
        read = message_of(json.dumps(found))
    except ReportError as error:
        assert str(error).endswith(".")
        return
    assert message_of(text_of(read)) == read


def _replace_one(found: dict[str, Any], data: st.DataObject) -> None:
    place: Any = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or data.draw(st.booleans()):
            place[key] = data.draw(json_values)
            return
        place = inner


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"boot": "A" * 32}, "boot is not 32 hexadecimal digits"),
        ({"boot": "a" * 31}, "boot is not 32 hexadecimal digits"),
        ({"sequence": True}, "sequence is no number"),
        ({"sequence": 1.0}, "sequence is no number"),
        ({"sequence": -2}, "sequence is no number"),
        ({"sent_at": -1}, "sent_at is no number of seconds"),
        ({"sent_at": 10**400}, "sent_at is no number of seconds"),
        ({"whole": 1}, "whole is neither true nor false"),
        ({"node": []}, "node is no object"),
        ({"devices": []}, "devices has more than"),
        ({"devices": {"a": {}}}, "devices has no "),
        ({"type": "goodbye"}, "no known type"),
    ],
)
@pytest.mark.promise("bad-input-51")
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    """The node's log can say which field it was."""
    assert says in refused({**plain(a_report()), **change})


@pytest.mark.promise(
    "bad-input-52",
    "More devices, tenants, text or bytes than a node may report: refused as a whole",
)
def test_bounds() -> None:
    """One more than may be is refused, as many as may be are taken."""
    row, tenant = plain(a_report(devices={"d": a_device()}))["devices"]["d"], a_tenant()
    full = {**plain(a_report()), "devices": {str(n): row for n in range(DEVICES_MAX)}}
    assert isinstance(message_of(json.dumps(full)), Report)
    full["devices"]["one more"] = row
    assert f"more than {DEVICES_MAX}" in refused(full)
    many = {str(n): None for n in range(TENANTS_MAX + 1)}
    assert f"more than {TENANTS_MAX}" in refused({**plain(a_report()), "tenants": many})
    long = dataclasses.replace(tenant, name="x" * (TEXT_CHARACTERS_MAX + 1))
    assert "name is no text" in refused(text_of(a_report(tenants={"t": long})))
    assert "more than" in refused(" " * (MESSAGE_BYTES_MAX + 1))
    counts = dataclasses.replace(a_node().waits, counts=(1, 2))
    assert "one number for each class" in refused(text_of(a_report(node=a_node(waits=counts))))


def test_names_cannot_command_a_terminal() -> None:
    """What is not printable has become something that is."""
    text = text_of(a_report(tenants={"t": a_tenant(name="a\x1b[2J\u202eb\ud800")}))
    read = message_of(text)
    assert isinstance(read, Report)
    row = read.tenants["t"]
    assert row and row.name == "a\ufffd[2J\ufffdb\ufffd"


def test_optional_fields_need_not_be_there() -> None:
    """What has a default may be missing."""
    assert message_of(f'{{"type": "hello", "boot": "{BOOT}", "version": "9"}}') == NodeHello(
        boot=BOOT, version="9"
    )


@given(st.one_of(devices, tenants))
def test_characters_of_a_row(row: Any) -> None:
    """What is counted follows what is written, so that a bound of one is a bound of the other."""
    is_device = not hasattr(row, "owner")
    rows: dict[str, Any] = {"devices" if is_device else "tenants": {"x": row}}
    written = len(text_of(a_report(**rows))) - len(text_of(a_report()))
    assert sum(map(len, _texts(row))) <= characters_of(row) <= written + 200


def _texts(row: Any) -> list[str]:
    found: list[str] = []
    for each in dataclasses.astuple(row):
        values = each if isinstance(each, tuple) else (each,)
        for value in values:
            found += [
                v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, str)
            ]
    return found
