"""The requests that the scheduler answers: the process's own domain.

HTTP handlers and the translator call in here; events go on to the driver. Nothing here knows a
socket or a message.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.core.events import (
    Event,
    InterruptRequested,
    ReleaseRequested,
    RequestEvent,
    TenantBusy,
    TenantRegistered,
    TenantRemoved,
)
from jupyter_gpushare.core.ids import ClientId, Seconds, TenantId
from jupyter_gpushare.core.settings import TurnTaking
from jupyter_gpushare.core.snapshot import Snapshot
from jupyter_gpushare.version import __version__

from ..base.errors import RequestError
from ..base.names import cut, printable_line
from ..base.settings_file import SettingsFile
from ..identity.caller import Caller, groups_of_account
from ..identity.recovery import Recovery
from ..identity.seen import Names
from ..identity.tenants import TenantBook
from ..identity.tokens import (
    NAME_BYTES_MAX,
    TOKEN_BYTES_MAX,
    TenantRecord,
    TokenSigner,
    new_tenant_id,
    owner_of,
)
from .administration import Administration
from .cut import Cut, Plain, status_of
from .live_settings import LiveSettings
from .looks import Look
from .members import Members
from .noted import class_note, class_of
from .past_waits import PastWaits
from .past_waits_cut import waits_of
from .placed import placement_sentence, wish_of
from .rights import may_act_on
from .timeline import Timeline
from .timeline_cut import timeline_of
from .waits import EstimatesOf, no_estimates

log = logging.getLogger(__name__)

KINDS = ("kernel", "run")
TENANTS_MAX = 4096
TENANTS_PER_USER_MAX = 512
"""One user among several cannot take every place."""
KERNEL_ID_CHARACTERS_MAX = 128
_NAME_BYTES_MIN = 8


class Service:
    """`submit`, `request`, `snapshot` and `estimates` are the driver's. `now_s` is of the clock by
    which `timeline` and `past_waits` are told what happens. The others are told: `joined` at each
    client, `recovered` when all who were expected are back, `tenants_changed` with their count,
    `tenant_gone` with its id. `later` calls after a time, as a loop does. `reports` tells how
    reporting to the view goes, `no_gpu` why the driver lists none."""

    def __init__(
        self,
        *,
        submit: Callable[[Event], None],
        request: Callable[[RequestEvent], None],
        snapshot: Callable[[], Snapshot],
        estimates: EstimatesOf = no_estimates,
        settings: LiveSettings,
        signer: TokenSigner,
        tenants: TenantBook,
        members: Members,
        recovery: Recovery,
        hook_socket: Path,
        settings_file: SettingsFile | None = None,
        administration: Administration,
        seen: Names | None = None,
        timeline: Timeline | None = None,
        past_waits: PastWaits | None = None,
        now_s: Callable[[], Seconds] | None = None,
        cap_bytes: int = 0,
        as_before: Callable[[TenantRegistered], TenantRegistered] = lambda event: event,
        recovered: Callable[[], None] = lambda: None,
        joined: Callable[[], None] = lambda: None,
        tenants_changed: Callable[[int], None] = lambda count: None,
        tenant_gone: Callable[[str], None] = lambda tenant_id: None,
        later: Callable[..., object] = lambda after_s, call, *of: call(*of),
        reports: Callable[[], dict[str, Any] | None] = lambda: None,
        no_gpu: Callable[[], str] = lambda: "",
    ) -> None:
        self._submit = submit
        self._request = request
        self._snapshot = snapshot
        self._estimates = estimates
        self._settings = settings
        self._settings_file = settings_file
        self._administration = administration
        self._seen = seen or Names()
        self._timeline = timeline or Timeline()
        self._past_waits = past_waits or PastWaits()
        self._now_s = now_s or (lambda: snapshot().at_s)
        self._signer = signer
        self._tenants = tenants
        self._members = members
        self._recovery = recovery
        self._hook_socket = hook_socket
        self._cap_bytes = cap_bytes
        self._own_uid = os.getuid()
        self._started_s = snapshot().at_s
        self._as_before = as_before
        self._recovered = recovered
        self._joined = joined
        self._tenants_changed = tenants_changed
        self._tenant_gone = tenant_gone
        self._later = later
        self._reports = reports
        self._no_gpu = no_gpu

    # ---- from the hooks' side ----

    def client_joined(
        self, client: ClientId, record: TenantRecord, *, administers: bool = False
    ) -> None:
        """Note the client, whose account administers here or does not. Its tenant is registered
        again if a predecessor had registered it; raises CoreError where that fails."""
        if self._tenants.get(record.tenant_id) is None:
            groups = None if record.hub_user else groups_of_account(record.uid)
            event = _registration(record, groups=groups, cause="known by its token")
            self._request(self._as_before(event))
            self._seen.note(event.owner, groups)
            self._tenants.add(record, registrant_lives=False)
            self._tenants_changed(len(self._tenants))
        self._tenants.client_joined(record.tenant_id, client)
        self._members.add(client, record, administers=administers)
        self._joined()

    def client_names_device(self, client: ClientId) -> None:
        """Who has come to ask for something alone, as NVML does, names none: it is not back."""
        if self._recovery.client_back(self._members.pids.get(client, 0)):
            self._recovered()

    def client_left(self, client: ClientId) -> None:
        record = self._members.remove(client)
        if record and self._tenants.client_left(record.tenant_id, client):
            # Where the connection alone has ended, the process comes back to what the tenant had.
            grace_s = self._settings.now.reconnect_grace_s
            self._later(grace_s, self._forget, record.tenant_id, client)

    def _forget(self, tenant_id: str, client: ClientId) -> None:
        if self._tenants.is_back(tenant_id, client):
            return  # and may be away once more: another call is on its way then
        if self._tenants.forget_if_alone(tenant_id):
            self._gone(tenant_id, cause="nobody is left to remove it")

    # ---- from HTTP ----

    def status(self, caller: Caller, look: Look) -> Cut:
        """As the caller may see it; made once for all who may see the same."""
        seer = (caller.key, caller.is_admin)
        if seer not in look.cuts:
            look.cuts[seer] = Cut(self._cut(look.plain, caller))
        return look.cuts[seer]

    def _cut(self, plain: Plain, caller: Caller) -> dict[str, Any]:
        process = {
            "version": __version__,
            "pid": os.getpid(),
            "user": user_name(self._own_uid),
            "runtime_dir": str(self._hook_socket.parent),
            "uptime_s": round(plain.at_s - self._started_s, 1),
            "reports": self._reports(),
            "no_gpu": self._no_gpu(),
        }
        return status_of(
            plain,
            self._tenants,
            process=process,
            may_see=lambda key: caller.is_admin or key == caller.key,
            visibility=self._settings.now.visibility,
            estimates=self._estimates,
            kinds=self._members.kinds.of,
            host=self._members.host,
        )

    def timeline(self, caller: Caller, look: Look) -> dict[str, Any]:
        """The last quarter of an hour, as the caller may see it."""
        return timeline_of(
            self._timeline,
            look.snapshot.devices,
            may_see=lambda key: caller.is_admin or key == caller.key,
            is_own=lambda key: key == caller.key,
            visibility=self._settings.now.visibility,
            now_s=self._now_s(),
        )

    def past_waits(self, caller: Caller, look: Look, tenant_id: str) -> dict[str, Any]:
        """When and why the tenant waited lately, as the caller may see it."""
        may_act_on(caller, tenant_id)
        return waits_of(
            self._past_waits,
            TenantId(tenant_id),
            {device.id: device.name for device in look.snapshot.devices},
            may_see=lambda key: caller.is_admin or key == caller.key,
            visibility=self._settings.now.visibility,
            now_s=self._now_s(),
        )

    def register_tenant(self, caller: Caller, request: dict[str, Any]) -> dict[str, str]:
        """A new tenant of the caller's, and its token."""
        name, kind = request.get("name"), request.get("kind")
        kernel_id = request.get("kernel_id")
        if request.get("user", caller.name) != caller.name:
            raise RequestError(
                HTTPStatus.FORBIDDEN,
                "You cannot register a tenant for another user. Leave `user` out: who you are is "
                "known.",
            )
        if not isinstance(name, str) or not name.strip():
            raise RequestError(HTTPStatus.BAD_REQUEST, "The tenant has no name. Send `name`.")
        if kind not in KINDS:
            allowed = " or ".join(KINDS)
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"There is no kind {kind!r}. Send {allowed} as `kind`."
            )
        if kernel_id is not None and not (
            isinstance(kernel_id, str) and len(kernel_id) <= KERNEL_ID_CHARACTERS_MAX
        ):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, "`kernel_id` is not an id. Send a short text."
            )
        if len(self._tenants) >= TENANTS_MAX:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"The scheduler has {TENANTS_MAX} tenants already, which is its limit. Shut "
                f"kernels down that are not needed.",
            )
        if not caller.is_admin and self._tenants.of(caller.key) >= TENANTS_PER_USER_MAX:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"You have {TENANTS_PER_USER_MAX} tenants already, which is the limit. Shut down "
                f"kernels that are not needed.",
            )
        record = self._fitting(caller, clean_name(name), kind, class_of(request))
        cause = f"registered by {caller.name}"
        need, need_devices = wish_of(request)
        self._request(
            replace(
                _registration(record, groups=caller.groups, cause=cause),
                need=need,
                need_devices=need_devices,
            )
        )
        self._seen.note(owner_of(record), caller.groups)
        self._tenants.add(record, kernel_id=kernel_id, registrant_lives=True)
        self._tenants_changed(len(self._tenants))
        answer = {
            "tenant_id": record.tenant_id,
            "token": self._signer.issue(record),
            "socket": str(self._hook_socket),
        }
        asks = need or need_devices or record.asked_class
        return {**answer, **self._what_came_of_it(record.tenant_id)} if asks else answer

    def _what_came_of_it(self, tenant_id: str) -> dict[str, str]:
        """What the tenant has to be started with, and told."""
        snapshot = self._snapshot()
        tenant = next(each for each in snapshot.tenants if each.id == tenant_id)
        answer = {}
        if (note := class_note(asdict(tenant))) is not None:
            answer["class_note"] = note
        if tenant.placement is not None:
            devices = [{"id": device.id} for device in snapshot.devices]
            sentence = placement_sentence(asdict(tenant.placement), devices)
            answer["visible_devices"] = tenant.placement.visible
            answer["placement"] = sentence or ""
        return answer

    def remove_tenant(self, caller: Caller, tenant_id: str) -> None:
        """May be repeated, and works for tenants that a predecessor registered."""
        may_act_on(caller, tenant_id)
        if self._tenants.remove(tenant_id):
            self._gone(tenant_id, cause="it was removed")

    def interrupt_tenant(self, caller: Caller, tenant_id: str) -> None:
        with self._administration.noted(caller, "interrupt", tenant_id):
            if self._tenants.get(tenant_id):
                tenant = TenantId(tenant_id)
                self._past_waits.interrupted(tenant, self._now_s())
                self._request(InterruptRequested(tenant=tenant, cause="kernel interrupted"))

    def release_tenant(self, caller: Caller, tenant_id: str) -> None:
        """Ask for the tenant's turn, as its user wants it given to somebody else; a hold that waits
        for the tenant's next turn is taken back likewise."""
        with self._administration.noted(caller, "release", tenant_id):
            self._release(caller, tenant_id)

    def _release(self, caller: Caller, tenant_id: str) -> None:
        if self._settings.now.turns is TurnTaking.OFF:
            raise RequestError(
                HTTPStatus.CONFLICT,
                "Turns are switched off, so there is none to release. Switch them on with "
                "`jupyter gpushare set turns on`.",
            )
        snapshot = self._snapshot()
        holds = {holder.tenant for device in snapshot.devices for holder in device.holders}
        holds |= {tenant.id for tenant in snapshot.tenants if tenant.hold_to_come_s > 0}
        if tenant_id not in holds:
            raise RequestError(
                HTTPStatus.CONFLICT,
                "This kernel does not hold the GPU. There is nothing to release.",
            )
        cause = f"released by {caller.name}"
        self._request(ReleaseRequested(tenant=TenantId(tenant_id), cause=cause))

    def tenant_busy(self, caller: Caller, tenant_id: str, request: dict[str, Any]) -> None:
        """A cell began or ended, as the kernel's server sees it."""
        may_act_on(caller, tenant_id)
        busy = request.get("busy")
        if not isinstance(busy, bool):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, "`busy` is neither true nor false. Send one of them."
            )
        if self._tenants.get(tenant_id):
            cause = "cell began" if busy else "cell ended"
            self._request(TenantBusy(tenant=TenantId(tenant_id), busy=busy, cause=cause))

    def explain_settings(self, caller: Caller) -> dict[str, object]:
        """Where each setting comes from; administrators also read of the settings file, and which
        users and groups the settings name that nobody has seen."""
        file = self._settings_file if caller.is_admin else None
        return {
            "settings": self._settings.layers.explained(),
            "file": file.as_json() if file else None,
            "unseen": self._seen.unseen(self._settings.now) if caller.is_admin else {},
        }

    # ---- from the watch over registrants ----

    def registrant_ended(self, tenant_id: str) -> None:
        if self._tenants.registrant_ended(tenant_id):
            self._gone(tenant_id, cause="the process that registered it has ended")

    # ---- the inside ----

    def _fitting(self, caller: Caller, name: str, kind: str, asked_class: str) -> TenantRecord:
        """A new tenant whose token the protocol can carry: the name gives way, the owner does
        not."""
        tenant_id = new_tenant_id(caller.key)
        name_bytes = NAME_BYTES_MAX
        while name_bytes >= _NAME_BYTES_MIN:
            record = TenantRecord(
                tenant_id,
                caller.uid,
                cut(name, name_bytes) or "unnamed",
                kind,
                self._cap_bytes,
                caller.hub_user,
                asked_class,
            )
            if len(self._signer.issue(record)) <= TOKEN_BYTES_MAX:
                return record
            name_bytes -= _NAME_BYTES_MIN
        raise RequestError(
            HTTPStatus.FORBIDDEN,
            "Your name at the hub is too long for a tenant's token. Ask its administrator for a "
            "shorter one.",
        )

    def _gone(self, tenant_id: str, *, cause: str) -> None:
        self._submit(TenantRemoved(tenant=TenantId(tenant_id), cause=cause))
        self._tenant_gone(tenant_id)
        self._tenants_changed(len(self._tenants))


def clean_name(name: str) -> str:
    """Short enough for a token, and never empty."""
    return cut(printable_line(name), NAME_BYTES_MAX) or "unnamed"


def _registration(
    record: TenantRecord, *, groups: tuple[str, ...] | None, cause: str
) -> TenantRegistered:
    return TenantRegistered(
        tenant=TenantId(record.tenant_id),
        name=record.name,
        owner=owner_of(record),
        kind=record.kind,
        cap_bytes=record.cap_bytes,
        asked_class=record.asked_class,
        groups=groups,
        cause=cause,
    )
