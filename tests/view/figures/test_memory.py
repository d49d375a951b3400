"""What many rows say again is kept once: a thousand nodes have 80,000 tenants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpushare.reports import format as report_format
from jupyter_gpushare.reports.format import Report, TenantRow, message_of, text_of
from tests.reports.rows import a_report, a_tenant


def read(**tenants: TenantRow) -> dict[str, TenantRow]:
    message = message_of(text_of(a_report(tenants=tenants)))
    assert isinstance(message, Report)
    return {id: row for id, row in message.tenants.items() if row is not None}


def test_what_rows_have_in_common_is_one_object() -> None:
    """Over rows, reports and nodes."""
    row = a_tenant(owner="a user of many", groups=("one group", "another"), devices=("GPU-1",))
    first, second = (read(t=row, u=replace(row, name="other.ipynb")) for _ in range(2))
    rows = [*first.values(), *second.values()]
    assert rows == [row, replace(row, name="other.ipynb")] * 2
    for name in ("owner", "kind", "state", "runs_as", "groups", "devices"):
        assert len({id(getattr(each, name)) for each in rows}) == 1, name


def test_nobody_can_fill_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts are in no row but their own, and there are only so many short ones."""
    kept = report_format._shared
    long = "x" * 400
    read(t=a_tenant(owner=long, groups=(long,), devices=tuple(f"{n:020}" for n in range(60))))
    assert not any(len(key) > 128 for key in kept)
    assert all(sum(map(len, key)) <= 128 for key in kept if isinstance(key, tuple))
    monkeypatch.setattr(report_format, "_SHARED_MAX", 100)
    read(**{f"t{n}": a_tenant(owner=f"owner {n}") for n in range(1000)})
    assert 0 < len(kept) <= 100
