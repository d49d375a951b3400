"""The scheduler's process without its command line: builds the parts, runs them, ends them."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpushare.client.paths import HOOK_SOCKET, HTTP_SOCKET, TENANTS_DIR
from jupyter_gpushare.core.events import (
    Event,
    NeedAsked,
    RecoveryComplete,
    RequestEvent,
    TenantRegistered,
)
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.records import NAMES_ALL_S
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import JournalNames
from jupyter_gpushare.core.shown.moves import Moves
from jupyter_gpushare.hub.auth import HubUnavailable, hub_tokens
from jupyter_gpushare.reports.waits import WaitCounter
from jupyter_gpushare.version import __version__

from .base.errors import StartError
from .base.settings_file import LOOK_S, SettingsFile
from .descriptors import raise_descriptor_limit
from .devices.named import DeviceBook
from .devices.probe import Choose, DeviceProbe
from .driver import Driver
from .hook.connection import Clients
from .hook.listener import HookListener
from .hook.translate import Inbound, Outbound
from .http.api import HTTPApi
from .http.callers import AccountCallers, Callers, HubCallers
from .http.event_stream import Followers
from .http.handover import Handover
from .identity.admission import Admission
from .identity.recovery import Recovery, expected_clients, sees_everybody
from .identity.registrants import RegistrantWatch
from .identity.seen import Names
from .identity.tenants import TenantBook
from .identity.tokens import TokenSigner, load_or_make_key, owner_of
from .journal import Journal, as_it_is
from .kept_file import KEPT_FILE, KeptFile
from .owners_file import OWNERS_FILE, WRITE_EVERY_S, OwnersFile
from .pseudonyms import Pseudonyms
from .report.found import PluginProblems
from .report.node import NodeTeller
from .report.options import ReportOptions
from .report.sender import REPORTS_SHARE, Reporter
from .runtime_dir import RuntimeDir
from .service.administration import Administration
from .service.audit import AUDIT_FILE, Audit
from .service.frozen import FreezeWatch
from .service.live_settings import LiveSettings
from .service.looks import ANSWERS_SHARE, NEWS_SHARE, Looks
from .service.members import Members
from .service.past_waits import PastWaits
from .service.service import Service
from .service.timeline import Label, Timeline

log = logging.getLogger(__name__)

HEARD_S_MAX = 600.0
"""A start is over by then, and those who were left behind have had their time."""
LATE_S = 0.5
"""A timer that is later than this has not been looked at in time: the process was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """All that the process is started with; app.py reads it from files and flags."""

    settings: LiveSettings
    settings_file: SettingsFile | None = None
    choose_devices: Choose
    serves_all: bool = False
    hub: bool = False
    idle_exit_s: float | None = None
    journal: Path | None = None
    check: bool = False
    cap_bytes: int = 0
    probe_period_s: float = 1.0
    message_deadline_s: float = 5.0
    journal_days: int = 7
    journal_names: JournalNames = JournalNames.PSEUDONYMS
    report: ReportOptions | None = None
    """To the view of all nodes; None: there is none."""


def callers_for(*, hub: bool) -> dict[str, Callers]:
    """By the socket at which they call. Raises StartError where there is no hub to ask."""
    if not hub:
        return {HTTP_SOCKET: AccountCallers()}
    try:
        tokens = hub_tokens()
    except HubUnavailable as error:
        raise StartError(str(error)) from error
    return {
        HTTP_SOCKET: HubCallers(tokens),
        f"{TENANTS_DIR}/{HTTP_SOCKET}": HubCallers(tokens, tokens_alone=True),
    }


class SchedulerProcess:
    """One scheduler in one locked runtime directory."""

    def __init__(self, directory: RuntimeDir, options: ProcessOptions) -> None:
        self._directory = directory
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self.exit_status = os.EX_OK
        self._idle_timer: asyncio.TimerHandle | None = None
        self._settings_timer: asyncio.TimerHandle | None = None
        self._owners_timer: asyncio.TimerHandle | None = None
        self._recovery_timer: asyncio.TimerHandle | None = None
        self._tenants_count = 0
        self._followers_count = 0
        key = load_or_make_key(directory.fd)
        signer = TokenSigner(key)
        expected, recovering_until_s = self._look_for_clients(signer)
        named = options.journal_names is JournalNames.NAMES
        self._journal = (
            Journal(
                options.journal,
                settings=options.settings.now,
                recovering_until_s=recovering_until_s,
                days=options.journal_days,
                hidden=as_it_is if named else Pseudonyms(key).in_place_of_names,
            )
            if options.journal
            else None
        )
        self._build(signer, expected, recovering_until_s)

    def _look_for_clients(self, signer: TokenSigner) -> tuple[set[int], float | None]:
        """After a predecessor: whom to wait for, and until when at most."""
        if not self._directory.had_predecessor:
            return set(), None
        grace_s = self._options.settings.now.reconnect_grace_s
        everybody = sees_everybody(serves_all=self._options.serves_all)
        expected = expected_clients(signer) if everybody else set()
        log.warning(
            "a scheduler before this one left clients behind: no turns for %g s, or until %s back",
            grace_s,
            f"processes {sorted(expected)} are" if expected else "then, whoever is",
        )
        return expected, self._loop.time() + grace_s + HEARD_S_MAX

    def _build(
        self, signer: TokenSigner, expected: set[int], recovering_until_s: float | None
    ) -> None:
        """Each part is given those that were there before it. What the driver
        asks of the probe, which is made after it, goes through this object."""
        options, loop = self._options, self._loop
        core = Scheduler(options.settings.now, recovering_until_s=recovering_until_s)
        tenants, clients = TenantBook(), Clients()
        self._tenants = tenants
        self._timeline, self._past_waits = Timeline(), PastWaits()
        self._waits = WaitCounter()
        self._members = members = Members(tenants, settings=lambda: core.settings)
        self._followers = Followers(self._followers_changed)
        self._driver = driver = Driver(
            scheduler=core,
            clock=loop,
            links=Outbound(clients, members),
            journal=self._journal,
            check=(lambda: self._check(core)) if options.check else None,
            changed=self._changed,
            measure=lambda device: self._probe.measure(),
        )
        self._owners = OwnersFile(self._directory.path / OWNERS_FILE)
        self._core, self._moves = core, Moves(core)
        options.settings.request = driver.request
        options.settings.unseen = lambda: len(members) - len(members.pids)
        kept = KeptFile(self._directory.path / KEPT_FILE)
        self._reporter = self._reporter_to(options.report, kept)
        devices = DeviceBook(clients_may_name=not options.serves_all, mode_of=kept.mode_of)

        def seen(event: Event) -> None:
            for each in devices.seen(event):
                driver.submit(each)

        def request(event: RequestEvent) -> None:
            driver.request(event)
            kept.note(event)
            if isinstance(event, NeedAsked) or (isinstance(event, TenantRegistered) and event.need):
                tenants = driver.snapshot().tenants
                place = next(each.placement for each in tenants if each.id == event.tenant)
                if place is not None and place.devices:
                    kept.note_place(event, place.devices)

        def gone(tenant_id: str) -> None:
            self._registrants.forget(tenant_id)
            kept.forget(tenant_id)
            self._past_waits.forget(TenantId(tenant_id))

        self._probe = DeviceProbe(
            submit=seen,
            choose=options.choose_devices,
            busy=lambda: len(members) > 0,
            pids=lambda: members.pids,
            period_s=options.probe_period_s,
            looked=lambda reading: self._timeline.measured(
                DeviceId(reading.device), reading.percent, reading.bytes_used, loop.time()
            ),
        )
        self._freezes = FreezeWatch(
            submit=driver.submit,
            pids=lambda: members.pids,
            somebody_waits=lambda: core.somebody_waits,
        )
        self._registrants = RegistrantWatch()
        audit = Audit(self._directory.path / AUDIT_FILE)
        if file := options.settings_file:
            name = str(file.path)
            file.noted = lambda result: audit.note("settings file", "reload", name, {}, result)
        administration = Administration(
            request=request,
            snapshot=driver.snapshot,
            settings=options.settings,
            tenants=tenants,
            audit=audit,
        )
        service = Service(
            submit=driver.submit,
            request=request,
            as_before=kept.as_before,
            snapshot=driver.snapshot,
            estimates=driver.estimates,
            settings=options.settings,
            settings_file=options.settings_file,
            administration=administration,
            seen=Names(accounts=not options.hub),
            timeline=self._timeline,
            past_waits=self._past_waits,
            now_s=loop.time,
            signer=signer,
            tenants=tenants,
            members=members,
            recovery=Recovery(expected),
            hook_socket=self._directory.hook_socket,
            cap_bytes=options.cap_bytes,
            recovered=lambda: driver.submit(RecoveryComplete(cause="everybody is back")),
            joined=self._probe.wake,
            tenants_changed=self._tenants_changed,
            tenant_gone=gone,
            later=loop.call_later,
            reports=lambda: self._reporter.as_json() if self._reporter else None,
            no_gpu=lambda: self._probe.no_gpu,
        )
        admission = Admission(signer=signer, tenants=tenants, serves_all=options.serves_all)
        answers = Looks(driver.snapshot, share=ANSWERS_SHARE)
        self._listener = HookListener(
            admission=admission,
            inbound=Inbound(
                submit=driver.submit,
                service=service,
                members=members,
                clients=clients,
                looks=answers,
                devices=devices,
            ),
            clients=clients,
            clients_max=lambda: core.settings.clients_max,
            message_deadline_s=options.message_deadline_s,
        )
        http = functools.partial(
            HTTPApi,
            service=service,
            administration=administration,
            admission=admission,
            registrants=self._registrants,
            followers=self._followers,
            handover=Handover(
                end=self.end,
                processes=self._processes_to_serve,
                started_to_stay=not options.idle_exit_s,
            ),
            answers=answers,
            news=Looks(driver.snapshot, share=NEWS_SHARE),
            answer_deadline_s=options.message_deadline_s,
        )
        by_socket = callers_for(hub=options.hub)
        self._apis = {name: http(callers=callers) for name, callers in by_socket.items()}

    def _reporter_to(self, report: ReportOptions | None, kept: KeptFile) -> Reporter | None:
        if report is None:
            return None
        teller = NodeTeller(
            tenants=self._tenants,
            groups_of=kept.groups_of,
            waits=self._waits,
            plugin=PluginProblems(self._directory.path),
            version=__version__,
            platform=report.platform,
            hub=self._options.hub,
        )
        looks = Looks(self._driver.snapshot, share=REPORTS_SHARE)
        return Reporter(report, looks=looks, now=teller.now, version=__version__)

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until `end`; `ready` is called once all sockets answer."""
        raise_descriptor_limit()
        try:
            for remembered in self._owners.read():
                self._driver.submit(remembered)
            await self._probe.start()
            self._count_idle_time()
            await self._listener.start(self._directory.listen(HOOK_SOCKET))
            if self._options.hub:
                self._directory.make_tenants_dir()
                tenants_socket = self._directory.listen(f"{TENANTS_DIR}/{HOOK_SOCKET}")
                await self._listener.start(tenants_socket)
            for name, api in self._apis.items():
                api.start(self._directory.listen(name))
            self._await_clients()
            self._follow_settings_file()
            self._remember_owners()
            if self._reporter:
                self._reporter.start()
            # What is there now stays: leaving it out keeps collections too short to delay a turn.
            gc.collect()
            gc.freeze()
            log.info("jupyter-gpushare %s serves %s", __version__, self._directory.path)
            ready()
            await self._ending.wait()
        finally:
            await self._stop()

    def _await_clients(self, *, again: bool = False) -> None:
        """Those of before can connect only now, however long the devices have taken."""
        if self._driver.snapshot().recovering:
            grace_s = self._options.settings.now.reconnect_grace_s
            over_s = self._loop.time() + max(0.0, grace_s - NAMES_ALL_S)
            self._recovery_timer = self._loop.call_at(over_s, self._time_is_over, over_s, again)

    def _time_is_over(self, due_s: float, again: bool) -> None:
        """Those of before have had it, unless we stood still: who has connected is heard now."""
        if not again and self._loop.time() > due_s + LATE_S:
            self._await_clients(again=True)
        else:
            over = RecoveryComplete(in_time=False, cause="they had the time to come back")
            self._driver.submit(over)

    def _follow_settings_file(self) -> None:
        """Look at it now, and again and again."""
        if file := self._options.settings_file:
            self._settings_timer = self._loop.call_later(LOOK_S, self._follow_settings_file)
            file.look()

    def _remember_owners(self) -> None:
        """Write what they owe, now and again and again."""
        self._owners_timer = self._loop.call_later(WRITE_EVERY_S, self._remember_owners)
        self._owners.write(self._core.to_remember(self._loop.time()))

    def end(self, why: str) -> None:
        """From a signal or from idleness; may be repeated."""
        if not self._ending.is_set():
            log.info("ending: %s", why)
            self._ending.set()

    def _processes_to_serve(self) -> int:
        """Those whom we are still waiting for count as well."""
        return len(self._members) or int(self._driver.snapshot().recovering)

    async def _stop(self) -> None:
        clients_left = self._processes_to_serve() > 0
        timers = (
            self._idle_timer,
            self._settings_timer,
            self._owners_timer,
            self._recovery_timer,
        )
        for timer in timers:
            if timer:
                timer.cancel()
        self._owners.write(self._core.to_remember(self._loop.time()))
        if self._reporter:
            await self._reporter.stop()
        self._driver.stop()
        self._probe.stop()
        self._freezes.stop()
        await self._listener.stop()
        for api in self._apis.values():
            await api.stop()
        self._registrants.close()
        self._directory.release(clients_left=clients_left)
        if self._journal:
            self._journal.close()

    def _changed(self) -> None:
        """The core has handled an event."""
        self._followers.changed()
        self._freezes.wake()
        self._note_moves()
        if self._reporter:
            self._reporter.changed()

    def _note_moves(self) -> None:
        """Of turns and queues, for the timeline and for who asks why they waited."""
        for move in self._moves.take():
            now_s = self._loop.time()
            self._timeline.note(move, self._label_of, now_s)
            self._past_waits.note(move, self._label_of, now_s)
            if self._reporter:
                self._waits.note(move, now_s)

    def _label_of(self, tenant: TenantId, name: str, owner: str) -> Label:
        record = self._tenants.get(tenant)
        if record is None:
            return Label(tenant, name, owner)
        return Label(tenant, name or record.name, owner or owner_of(record), record.owner_key)

    def _check(self, core: Scheduler) -> None:
        """A state that is not sound ends a scheduler that was asked to look for it."""
        try:
            core.check_invariants()
        except AssertionError:
            log.exception("the core's state is not sound")
            self.exit_status = os.EX_SOFTWARE
            self.end("an invariant is broken")

    def _tenants_changed(self, count: int) -> None:
        self._tenants_count = count
        self._count_idle_time()

    def _followers_changed(self, count: int) -> None:
        self._followers_count = count
        self._count_idle_time()

    def _count_idle_time(self) -> None:
        """Start or stop counting towards the idle end. Who follows the events (a Jupyter server)
        may have a tenant at any moment."""
        if self._idle_timer:
            self._idle_timer.cancel()
            self._idle_timer = None
        idle_exit_s = self._options.idle_exit_s
        if idle_exit_s and not (self._tenants_count or self._followers_count):
            why = f"no tenants for {idle_exit_s:g} s"
            self._idle_timer = self._loop.call_later(idle_exit_s, self.end, why)
