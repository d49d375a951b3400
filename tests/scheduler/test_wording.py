"""What the core has codes for is said in sentences."""

from __future__ import annotations

import time

import pytest

from jupyter_gpushare.core.commands import (
    CloseClient,
    RecallReason,
    RecallTurn,
    RefuseClient,
    ReportOverdue,
    ReportSilent,
)
from jupyter_gpushare.core.ids import ClientId, TurnId
from jupyter_gpushare.scheduler.base.wording import report_of, why_closed, why_recalled, why_refused

ONE = ClientId(1)
NOON = "12:00:00"
AT_S = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize("reason", RecallReason)
def test_each_reason_for_a_recall_has_words(reason: RecallReason) -> None:
    """They name what concerns this tenant, and no other one."""
    recall = RecallTurn(
        client=ONE,
        turn=TurnId(1),
        reason=reason,
        device_name="GPU A",
        quantum_s=10.0,
        cause="released by me",
    )
    words = why_recalled(recall)
    assert words and "{" not in words
    names_device = reason in (RecallReason.DEVICE_TAKEN, RecallReason.PAUSED)
    assert ("GPU A" in words) == names_device
    assert ("10 s" in words) == (reason is RecallReason.QUANTUM_OVER)
    assert (words == "released by me") == (reason is RecallReason.ASKED)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (why_closed(CloseClient(client=ONE, tenant_name="train.ipynb")), ["train.ipynb"]),
        (why_refused(RefuseClient(client=ONE, until_s=7.0, lasts_s=20.0), AT_S), [NOON, "20 s"]),
        (
            report_of(
                ReportOverdue(
                    client=ONE,
                    tenant_name="train.ipynb",
                    process_name="python",
                    pid=7,
                    asked_s_ago=30.4,
                )
            ),
            ["train.ipynb", "pid 7", "30 s ago"],
        ),
        (
            report_of(
                ReportSilent(
                    client=ONE,
                    tenant_name="train.ipynb",
                    process_name="python",
                    pid=7,
                    device_name="GPU A",
                    bytes_held=3 << 30,
                    silent_s=10.0,
                )
            ),
            ["train.ipynb", "pid 7", "3072 MiB on GPU A", "10 s"],
        ),
    ],
)
def test_a_report_says_what_is_wrong_and_what_to_do(words: str, parts: list[str]) -> None:
    """Two sentences; the first has the figures."""
    first, remedy = words.split(". ", 1)
    assert all(part in first for part in parts)
    assert remedy.endswith(".")
