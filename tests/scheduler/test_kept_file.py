"""What administrators and the hub have said is known to the next scheduler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytest import LogCaptureFixture

from jupyter_gpushare.client import RequestRefused
from jupyter_gpushare.core.events import (
    DeviceFound,
    DeviceMode,
    DeviceModeChanged,
    TenantRegistered,
)
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.scheduler.devices.named import DeviceBook
from jupyter_gpushare.scheduler.identity.tokens import (
    TenantRecord,
    TokenSigner,
    new_tenant_id,
    owner_key,
)
from jupyter_gpushare.scheduler.kept_file import KEPT_FILE, KeptFile
from tests.scheduler.test_other_users import Office
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import SimulatedMachine

DEVICE = DeviceId("0" * 32)
LASTS = pytest.mark.promise(
    "scheduler-82",
    "A device that an administrator has paused or drained is so after a restart, too",
)


def mode(mode: DeviceMode) -> DeviceModeChanged:
    return DeviceModeChanged(device=DEVICE, mode=mode)


def registered(owner: str, *groups: str) -> TenantRegistered:
    return TenantRegistered(
        tenant=TenantId("t"), name="n", owner=owner, kind="kernel", groups=groups
    )


def groups_of(kept: KeptFile, owner: str) -> tuple[str, ...] | None:
    """Of a tenant that comes back and says none."""
    return kept.as_before(replace(registered(owner), groups=None)).groups


@LASTS
def test_what_is_said_is_known_to_the_next(tmp_path: Path) -> None:
    """Until it is taken back; under its name the file is complete, and its owner's alone."""
    path = tmp_path / KEPT_FILE
    kept = KeptFile(path)
    assert kept.mode_of(DEVICE) is None and groups_of(kept, "ann") is None
    kept.note(mode(DeviceMode.DRAINED))
    kept.note(registered("ann", "staff"))
    found = KeptFile(path)
    said = found.mode_of(DEVICE)
    assert said is not None and said.mode is DeviceMode.DRAINED
    assert (groups_of(found, "ann"), groups_of(found, "ben")) == (("staff",), None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [KEPT_FILE]
    found.note(mode(DeviceMode.OPEN))
    found.note(registered("ann"))
    assert KeptFile(path).mode_of(DEVICE) is None
    assert groups_of(KeptFile(path), "ann") == ()


@pytest.mark.promise("scheduler-20")
def test_an_account_of_a_users_name_has_groups_of_its_own(tmp_path: Path) -> None:
    """Also where an earlier version has written groups by name: those count until then."""
    path = tmp_path / KEPT_FILE
    path.write_text('{"kept": 1, "modes": {}, "groups": {"ann": ["lab"]}, "places": {}}')
    user, account = (
        replace(registered("ann", group), tenant=TenantId(new_tenant_id(key)))
        for group, key in (("staff", owner_key(7, "ann")), ("sudo", owner_key(1000)))
    )
    kept = KeptFile(path)
    assert kept.groups_of(user.tenant, "ann") == ("lab",)
    kept.note(user)
    kept.note(account)
    for found in (kept, KeptFile(path)):
        assert found.groups_of(user.tenant, "ann") == ("staff",)
        assert found.groups_of(account.tenant, "ann") == ("sudo",)
        for event in (user, account):
            assert found.as_before(replace(event, groups=None)) == event


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\x01",
        "[" * 100_000,
        '{"kept": 2}',
        '{"kept": 1, "modes": {"A": "odd"}, "groups": {}}',
        '{"kept": 1, "modes": [], "groups": {}}',
        '{"kept": 1, "modes": {}, "groups": {"ann": 7}}',
        '{"kept": 1, "modes": {}, "groups": {}, "places": {"t": {"need": "1GiB"}}}',
    ],
)
def test_a_broken_file_does_not_count(tmp_path: Path, caplog: LogCaptureFixture, text: str) -> None:
    """All devices are open then, the log says so, and the next word is written all the same."""
    path = tmp_path / KEPT_FILE
    path.write_text(text)
    kept = KeptFile(path)
    assert kept.mode_of(DEVICE) is None
    assert len(caplog.records) == 1
    kept.note(mode(DeviceMode.PAUSED))
    assert KeptFile(path).mode_of(DEVICE) is not None


def test_a_file_that_cannot_be_written(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    """The word counts for this scheduler alone, and the log says so."""
    kept = KeptFile(tmp_path / "gone" / KEPT_FILE)
    kept.note(mode(DeviceMode.PAUSED))
    assert kept.mode_of(DEVICE) is not None
    assert "cannot be written" in caplog.text


def test_a_device_that_comes_later_has_its_mode(tmp_path: Path) -> None:
    """Whether NVML lists it or a client names it."""
    kept = KeptFile(tmp_path / KEPT_FILE)
    kept.note(mode(DeviceMode.PAUSED))
    book = DeviceBook(clients_may_name=True, mode_of=kept.mode_of)
    found = DeviceFound(device=DEVICE, name="GPU", bytes_total=1)
    assert book.seen(found) == [found, kept.mode_of(DEVICE)]
    book = DeviceBook(clients_may_name=True, mode_of=kept.mode_of)
    assert book.opened(1, DEVICE, name="GPU", bytes_total=1)[1:] == [kept.mode_of(DEVICE)]  # type: ignore[arg-type]


@pytest.mark.promise("scheduler-35")
def test_a_place_is_known_to_the_next(tmp_path: Path) -> None:
    """Until the tenant is gone."""
    path, wish = tmp_path / KEPT_FILE, replace(registered("ann"), need="1GiB", need_devices="1")
    KeptFile(path).note_place(wish, (DEVICE,))
    assert KeptFile(path).as_before(registered("ann")) == replace(wish, placed_on=(DEVICE,))
    KeptFile(path).forget("t")
    assert KeptFile(path).as_before(registered("ann")) == registered("ann")


@pytest.mark.promise("scheduler-35")
def test_a_placed_kernel_is_where_it_was_after_a_restart(runtime: Path, tmp_path: Path) -> None:
    """Its process comes back with its token alone."""
    env = {**SimulatedMachine(tmp_path / "machine").env(), "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(runtime, env=env) as scheduler:
        tenant = scheduler.client.register_tenant("n", "kernel", wish={"need": "1GiB"})
        assert tenant.placement == "Placed on GPU 0: needs 1 GiB."
        scheduler.kill()
    with running_scheduler(runtime, env=env) as scheduler:
        client = scheduler.connect()
        client.join(tenant.token)
        status = scheduler.eventually(lambda status: status["tenants"])
        assert [each["placement"] for each in status["tenants"]] == [tenant.placement]


@pytest.mark.promise("scheduler-37")
def test_a_need_that_was_said_later_lasts(runtime: Path, tmp_path: Path) -> None:
    """Over a restart of the scheduler, as one from the start. Taken back, it is gone, and the place
    stays."""
    env = {**SimulatedMachine(tmp_path / "machine").env(), "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(runtime, env=env) as scheduler:
        tenants = [scheduler.client.register_tenant(name, "kernel") for name in ("a", "b")]
        for tenant in tenants:
            scheduler.client.set_tenant_need(tenant.tenant_id, "1GiB")
        scheduler.client.set_tenant_need(tenants[1].tenant_id, "none")
        said = [each["placement"] for each in scheduler.status()["tenants"]]
        assert said == ["Placed on GPU 0: needs 1 GiB.", "Placed on GPU 0."]
        scheduler.kill()
    with running_scheduler(runtime, env=env) as scheduler:
        back = [scheduler.connect() for _ in tenants]
        for client, tenant in zip(back, tenants, strict=True):
            client.join(tenant.token)
        status = scheduler.eventually(lambda status: len(status["tenants"]) == len(back))
        assert [each["placement"] for each in status["tenants"]] == said
        assert [each["need_bytes"] for each in status["tenants"]] == [1 << 30, 0]


@pytest.mark.promise("scheduler-37")
def test_a_need_is_refused_over_http(runtime: Path, tmp_path: Path) -> None:
    """With the status that says whose fault it is, and a sentence."""
    env = {**SimulatedMachine(tmp_path / "machine").env(), "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(runtime, env=env) as scheduler:
        client = scheduler.client
        tenant = client.register_tenant("n", "kernel").tenant_id
        for request, status, words in (
            ({"need": "9000GiB"}, 409, "Ask for less"),
            ({"need": "much"}, 400, "is no amount"),
            ({"need": "", "need_devices": "2"}, 400, "no `need`"),
            ({"need": "1GiB", "class": "batch"}, 400, "Send one request for each."),
            ({"need": ["1GiB"]}, 400, "is no amount"),
        ):
            with pytest.raises(RequestRefused, match=words) as refused:
                client._ask("PATCH", f"/tenants/{tenant}", request)
            assert refused.value.status == status
        with pytest.raises(RequestRefused) as refused:
            client.set_tenant_need("nobody", "1GiB")
        assert refused.value.status == 404


@LASTS
def test_a_paused_device_is_paused_after_a_restart(runtime: Path, tmp_path: Path) -> None:
    """Also when the scheduler was killed."""
    env = {**SimulatedMachine(tmp_path / "machine").env(), "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(runtime, env=env) as scheduler:
        (device,) = scheduler.status()["devices"]
        scheduler.client.set_device_mode(device["id"], "paused")
        scheduler.kill()
    with running_scheduler(runtime, env=env) as scheduler:
        (device,) = scheduler.status()["devices"]
        assert device["mode"] == "paused"
        scheduler.client.set_device_mode(device["id"], "open")
    with running_scheduler(runtime, env=env) as scheduler:
        assert [each["mode"] for each in scheduler.status()["devices"]] == ["open"]


@pytest.mark.promise("scheduler-20")
def test_a_kernel_that_comes_back_is_its_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its token names the user, and the file the groups."""
    office, seen = Office(), []
    monkeypatch.setattr(office.service, "_request", seen.append)
    kept = KeptFile(tmp_path / KEPT_FILE)
    kept.note(replace(registered("ann", "staff"), tenant=TenantId(f"7-{9:016x}")))
    monkeypatch.setattr(office.service, "_as_before", kept.as_before)
    for number, user in enumerate(("ann", "ben")):
        record = TenantRecord(f"{7 + number}-{number:016x}", 7, "n", "kernel", hub_user=user)
        record = TokenSigner(b"k" * 32).verify(TokenSigner(b"k" * 32).issue(record))
        office.service.client_joined(number, record)  # type: ignore[arg-type]
    assert [(event.owner, event.groups) for event in seen] == [("ann", ("staff",)), ("ben", None)]
