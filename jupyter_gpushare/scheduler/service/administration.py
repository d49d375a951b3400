"""What administrators ask for, and users for their own notebooks: devices are paused and drained;
tenants hold their turn, are evicted, and served next. Everything that concerns others is noted in
the audit log."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any

from jupyter_gpushare.core.configuration.values import find, settings_as_json
from jupyter_gpushare.core.events import (
    BoostRequested,
    ClassAsked,
    DeviceMode,
    DeviceModeChanged,
    EvictRequested,
    NeedAsked,
    RequestEvent,
    TenantHeld,
)
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.placement import BadNeed, need_of
from jupyter_gpushare.core.settings import SettingsError, TurnTaking
from jupyter_gpushare.core.shares.classes import CLASSES
from jupyter_gpushare.core.snapshot import Snapshot

from ..base.errors import RequestError
from ..identity.caller import Caller
from ..identity.tenants import TenantBook
from ..identity.tokens import owner_of
from .audit import Audit, Entry
from .live_settings import LiveSettings
from .noted import HOLD_REFUSED, class_of
from .placed import NO_NEED, wish_of
from .rights import may_act_on, must_administer

_VERBS = {DeviceMode.OPEN: "resume", DeviceMode.PAUSED: "pause", DeviceMode.DRAINED: "drain"}
_NOTHING: Mapping[str, object] = {}


class Administration:
    """`request` is the driver's."""

    def __init__(
        self,
        *,
        request: Callable[[RequestEvent], None],
        snapshot: Callable[[], Snapshot],
        settings: LiveSettings,
        tenants: TenantBook,
        audit: Audit,
    ) -> None:
        self._request = request
        self._snapshot = snapshot
        self._settings = settings
        self._tenants = tenants
        self._audit = audit

    # ---- devices and settings ----

    def set_mode(self, caller: Caller, device: str, request: dict[str, Any]) -> None:
        """Pause, drain or open a device."""
        must_administer(caller, "Devices are paused and drained")
        try:
            mode = DeviceMode(request.get("mode"))
        except ValueError:
            modes = ", ".join(each.value for each in DeviceMode)
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"`mode` is none. Send one of: {modes}."
            ) from None
        verb = _VERBS[mode]
        with self._audit.of(caller.name, verb, device[:64]):
            if mode is not DeviceMode.OPEN:
                self._must_take_turns()
            cause = f"{verb} by {caller.name}"
            self._request(DeviceModeChanged(device=DeviceId(device), mode=mode, cause=cause))

    def change_settings(self, caller: Caller, changes: dict[str, Any]) -> dict[str, object]:
        """All settings as they are now."""
        must_administer(caller, "Settings are changed")
        with self._audit.of(caller.name, "set", what=changes):
            try:
                settings = self._settings.set_live(changes, f"set by {caller.name}")
            except SettingsError as error:
                raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        return settings_as_json(settings)

    def unset_setting(self, caller: Caller, name: str) -> dict[str, object]:
        """What was set live counts no longer. All settings as they are now."""
        must_administer(caller, "Settings are changed")
        with self._audit.of(caller.name, "unset", what={"name": name}):
            wrong = HTTPStatus.NOT_FOUND
            try:
                find(name)
                wrong = HTTPStatus.BAD_REQUEST  # what would count instead cannot be kept here
                settings = self._settings.unset(name, f"unset by {caller.name}")
            except SettingsError as error:
                raise RequestError(wrong, str(error)) from error
        return settings_as_json(settings)

    # ---- tenants ----

    def noted(
        self, caller: Caller, verb: str, tenant_id: str, what: Mapping[str, object] = _NOTHING
    ) -> AbstractContextManager[None]:
        """Whoever may not act on the tenant is refused; what somebody does with another's is
        noted."""
        if may_act_on(caller, tenant_id):
            return contextlib.nullcontext()
        return self._audit.of(caller.name, verb, self._named(tenant_id), what)

    def hold(self, caller: Caller, tenant_id: str, request: dict[str, Any]) -> dict[str, float]:
        """Keep the tenant's turn for so long, or end that; answers with how long it is at most."""
        hold_s = request.get("hold_s")
        with self.noted(caller, "hold", tenant_id, {"hold_s": hold_s}):
            if isinstance(hold_s, bool) or not isinstance(hold_s, int | float):
                hold_s = math.nan
            if not 0 <= hold_s < math.inf:
                raise RequestError(
                    HTTPStatus.BAD_REQUEST, "`hold_s` is not a time. Send seconds; 0 ends a hold."
                )
            hold_max_s = self._settings.now.hold_max_s
            if hold_s and not hold_max_s:
                raise RequestError(
                    HTTPStatus.CONFLICT,
                    "Holds are switched off. Set hold_max_s to more than 0 first.",
                )
            cause = f"held by {caller.name}"
            tenant = TenantId(tenant_id)
            by_admin = caller.is_admin
            self._request(TenantHeld(tenant=tenant, hold_s=hold_s, by_admin=by_admin, cause=cause))
            if hold_s and self._hold_refused(tenant):
                raise RequestError(HTTPStatus.CONFLICT, HOLD_REFUSED)
            return {"hold_s": min(float(hold_s), hold_max_s)}

    def _hold_refused(self, tenant: TenantId) -> bool:
        return any(each.hold_refused for each in self._snapshot().tenants if each.id == tenant)

    def evict(self, caller: Caller, tenant_id: str) -> None:
        """The tenant gives its turn back and parks its memory."""
        with self.noted(caller, "evict", tenant_id):
            cause = f"evicted by {caller.name}"
            self._request(EvictRequested(tenant=TenantId(tenant_id), cause=cause))

    def set_class(self, caller: Caller, tenant_id: str, request: dict[str, Any]) -> None:
        """The tenant runs as another class from now on, if its owner may use that."""
        asked = class_of(request)
        with self.noted(caller, "class", tenant_id, {"class": asked}):
            if asked not in CLASSES:
                raise RequestError(
                    HTTPStatus.BAD_REQUEST,
                    f"There is no class {asked!r}. Send one of: {', '.join(CLASSES)}.",
                )
            cause = f"class asked by {caller.name}"
            self._request(ClassAsked(tenant=TenantId(tenant_id), asked_class=asked, cause=cause))

    def set_need(self, caller: Caller, tenant_id: str, request: dict[str, Any]) -> None:
        """The tenant needs another amount on its devices, or takes its need back."""
        need, devices = wish_of(request)
        if need.lower() in NO_NEED:
            need = ""
        with self.noted(caller, "need", tenant_id, {"need": need}):
            try:
                if need or devices:
                    need_of(need, devices)
            except BadNeed as error:
                raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
            cause = f"need said by {caller.name}"
            self._request(
                NeedAsked(tenant=TenantId(tenant_id), need=need, need_devices=devices, cause=cause)
            )

    def boost(self, caller: Caller, tenant_id: str) -> None:
        """The tenant is served next, once."""
        must_administer(caller, "Notebooks are boosted")
        may_act_on(caller, tenant_id)
        with self._audit.of(caller.name, "boost", self._named(tenant_id)):
            self._must_take_turns()
            cause = f"boosted by {caller.name}"
            self._request(BoostRequested(tenant=TenantId(tenant_id), cause=cause))

    # ---- what was done ----

    def entries(self, caller: Caller, count: str) -> list[Entry]:
        """The latest, the newest last."""
        must_administer(caller, "The audit log is read")
        if not (count.isascii() and count.isdigit() and len(count) < 9):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"{count[:20]!r} is not a count. Send a whole number."
            )
        return self._audit.latest(int(count))

    def _must_take_turns(self) -> None:
        if self._settings.now.turns is TurnTaking.OFF:
            raise RequestError(
                HTTPStatus.CONFLICT,
                "Turns are switched off, so nobody waits for one. Switch them on with `jupyter "
                "gpushare set turns on`.",
            )

    def _named(self, tenant_id: str) -> str:
        record = self._tenants.get(tenant_id)
        return tenant_id if record is None else f"{owner_of(record)}:{record.name}"
