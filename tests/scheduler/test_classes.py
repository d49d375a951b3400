"""Classes, as they are asked for over HTTP, and holds that are refused there."""

from __future__ import annotations

import pytest

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.kernel.environment import wish_of
from jupyter_gpushare.scheduler.identity.tokens import TenantRecord, TokenSigner
from jupyter_gpushare.scheduler.service.noted import class_note, class_of, hold_note
from tests.support.scheduler_process import SchedulerUnderTest

MAY = pytest.mark.promise("scheduler-7")


@MAY
@pytest.mark.parametrize(
    ("asked", "runs_as", "words"),
    [
        ("batch", "batch", ""),
        ("realtime", "interactive", "which root may not use, so it runs as interactive."),
        ("fast", "interactive", "There is no class 'fast', so this notebook runs as interactive."),
    ],
)
def test_a_class_is_asked_for(
    scheduler: SchedulerUnderTest, asked: str, runs_as: str, words: str
) -> None:
    """What may not be is answered in words, and the tenant is registered all the same."""
    client = scheduler.client
    owner = client.status()["scheduler"]["user"]
    tenant = client.register_tenant("train.ipynb", "kernel", wish={"class": asked})
    (shown,) = client.status()["tenants"]
    assert (shown["runs_as"], shown["id"]) == (runs_as, tenant.tenant_id)
    assert words.replace("root", owner) in tenant.class_note
    assert (shown["class_note"] or "") == tenant.class_note
    client.change_settings({"allowed_classes": f"{owner}=realtime"})
    (shown,) = client.status()["tenants"]
    assert shown["runs_as"] == (asked if asked != "fast" else "interactive")


def test_a_token_remembers_the_class() -> None:
    """So does a scheduler that was started again."""
    signer = TokenSigner(b"k" * 32)
    record = TenantRecord("1-00", 1, "n", "kernel", asked_class="batch")
    assert signer.verify(signer.issue(record)).asked_class == "batch"


@pytest.mark.parametrize(
    ("said", "found"),
    [(None, ""), ("batch", "batch"), (7, "7"), ("x" * 99, "x" * 16), ("\n\x1b", "?"), ({}, "{}")],
)
def test_whatever_is_asked_for_is_a_short_text(said: object, found: str) -> None:
    asked = class_of({} if said is None else {"class": said})
    assert len(asked) <= 16
    assert asked == found or not found.isprintable() or found == "?"


def test_notes_are_for_those_who_did_not_get_what_they_asked_for() -> None:
    tenant = {"asked_class": "", "runs_as": "batch", "owner": "ann", "hold_refused": False}
    assert class_note(tenant) is None
    assert class_note({**tenant, "asked_class": "batch"}) is None
    assert hold_note(tenant) is None
    assert "others wait" in (hold_note({**tenant, "hold_refused": True}) or "")


def test_a_kernelspec_and_the_environment_ask() -> None:
    """The kernelspec goes before; also where somebody has chosen devices already."""
    assert wish_of({"GPUSHARE_CLASS": "batch"}) == {"class": "batch"}
    assert wish_of({"GPUSHARE_CLASS": "batch"}, {"class": "realtime"}) == {"class": "realtime"}
    chosen = {"GPUSHARE_CLASS": "batch", "CUDA_VISIBLE_DEVICES": "0", "GPUSHARE_NEED": "1GiB"}
    assert wish_of(chosen) == {"class": "batch"}


@pytest.mark.promise("scheduler-9")
def test_a_class_is_changed_over_http(scheduler: SchedulerUnderTest) -> None:
    """What may not be is refused with a sentence, and the class stays."""
    client = scheduler.client
    owner = client.status()["scheduler"]["user"]
    tenant = client.register_tenant("train.ipynb", "kernel").tenant_id
    client.set_tenant_class(tenant, "batch")
    assert client.status()["tenants"][0]["runs_as"] == "batch"
    for asked, words in (
        ("realtime", f"This notebook stays batch: {owner} may not use the class realtime."),
        ("fast", "There is no class 'fast'. Send one of: batch, interactive, realtime."),
    ):
        with pytest.raises(RequestRefused) as refused:
            client.set_tenant_class(tenant, asked)
        assert words in str(refused.value)
        assert client.status()["tenants"][0]["runs_as"] == "batch"
    client.change_settings({"allowed_classes": f"{owner}=realtime"})
    client.set_tenant_class(tenant, "realtime")
    assert client.status()["tenants"][0]["runs_as"] == "realtime"
