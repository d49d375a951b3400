"""The plugin's decisions, in a world with a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_gpushare.kubelet.registration import (
    PAUSE_S_MAX,
    UNHEALTHY_AFTER_S,
    WATCH_S,
    Action,
    Advertise,
    End,
    Event,
    Identity,
    Looked,
    Open,
    Opened,
    OpenFailed,
    Register,
    Registered,
    RegisterFailed,
    Registration,
    SchedulerAnswered,
    Tell,
    WatchBegan,
    WatchEnded,
)


class World:
    """A kubelet, a scheduler and our socket, and what becomes of each action. Time passes in steps
    of a second, with a look in each."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.plugin = Registration(now_s=self.now_s)
        self.kubelet: Identity | None = None
        self.ours: Identity | None = None
        self.scheduler_is_up = False
        self.answered_s = self.now_s
        self.opens_well = self.takes_us = self.is_quick = self.watches = True
        self.pending: list[Open | Register] = []
        self.known_to: Identity | None = None
        self.is_watched = False
        self.told: list[str] = []
        self.advertised = True
        self.error = ""
        self._made = 0

    def identity(self) -> Identity:
        self._made += 1
        return (self._made,)

    def kubelet_starts(self) -> None:
        """It removes what lies in its directory."""
        self.kubelet_stops()
        self.kubelet, self.ours = self.identity(), None

    def kubelet_stops(self) -> None:
        self.kubelet = self.known_to = None
        self.unwatch()

    def unwatch(self) -> None:
        if self.is_watched:
            self.is_watched = False
            self.submit(WatchEnded())

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            if self.scheduler_is_up:
                self.answered_s = self.now_s
                self.submit(SchedulerAnswered())
            self.submit(Looked(self.kubelet, self.ours))
            if self.is_quick:
                self.work()

    def work(self) -> None:
        pending, self.pending = self.pending, []
        for action in pending:
            self._open() if isinstance(action, Open) else self._register(action)

    def submit(self, event: Event) -> None:
        for action in self.plugin.handle(event, now_s=self.now_s):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Open() | Register():
                assert not self.pending, "one deed at a time"
                self.pending.append(action)
            case Advertise(healthy):
                assert healthy != self.advertised, "only what has changed is told"
                self.advertised = healthy
            case Tell(text):
                self.told.append(text)
            case End(text):
                self.error = text

    def _open(self) -> None:
        self.unwatch()
        if self.opens_well:
            self.ours = self.identity()
            self.submit(Opened(self.ours))
        else:
            self.ours = None
            self.submit(OpenFailed("no space is left"))

    def _register(self, action: Register) -> None:
        if self.kubelet != action.kubelet:
            self.submit(RegisterFailed("the connection was closed", refused=False))
        elif not self.takes_us or self.ours is None:
            self.submit(RegisterFailed("no such version", refused=True))
        else:
            self.known_to = self.kubelet
            self.submit(Registered(action.kubelet))
            if self.watches and not self.is_watched:
                self.is_watched = True
                self.submit(WatchBegan())

    @property
    def serves(self) -> bool:
        return self.ours is not None and self.is_watched and self.known_to == self.kubelet


@pytest.fixture
def world() -> World:
    """Calm: a kubelet that knows us, and a scheduler."""
    made = World()
    made.scheduler_is_up = True
    made.kubelet_starts()
    made.pass_time(3)
    assert made.serves
    return made


@pytest.mark.promise("kubernetes-18")
@pytest.mark.parametrize(("away_s", "healthy"), [(119, True), (121, False)])
def test_the_scheduler_is_away(world: World, away_s: int, healthy: bool) -> None:
    """After 119 s pods still get seats, after 121 s none does, and at its next answer all do."""
    world.scheduler_is_up = False
    world.pass_time(away_s)
    assert world.advertised is healthy
    world.scheduler_is_up = True
    world.pass_time(1)
    assert world.advertised


@pytest.mark.promise("kubernetes-18")
def test_a_scheduler_that_has_not_come_yet() -> None:
    """When the plugin starts, it has as long as later: pods of a node that boots are admitted."""
    world = World()
    world.kubelet_starts()
    world.pass_time(119)
    assert world.serves
    assert world.advertised
    world.pass_time(2)
    assert not world.advertised


@pytest.mark.promise("kubernetes-18")
def test_time_in_which_we_did_not_run_does_not_count(world: World) -> None:
    """The plugin itself was paused for ten minutes: nothing says that the scheduler was away."""
    world.now_s += 600
    world.submit(Looked(world.kubelet, world.ours))
    assert world.advertised


@pytest.mark.promise("kubernetes-17")
def test_a_kubelet_is_made_anew(world: World) -> None:
    """The look that sees another kubelet's socket opens ours, and the next one registers."""
    world.kubelet_starts()
    world.pass_time(2)
    assert world.serves


@pytest.mark.promise("kubernetes-17")
def test_a_kubelet_that_leaves_our_socket(world: World) -> None:
    """Then registering alone is enough."""
    ours = world.ours
    world.kubelet_stops()
    world.kubelet = world.identity()
    world.pass_time(2)
    assert world.serves
    assert world.ours == ours


def test_the_pause_doubles_and_a_new_kubelet_ends_it(world: World) -> None:
    """A kubelet that says no is asked 1, 2, 4, … 30 s later; another one is asked at once."""
    world.takes_us = False
    world.kubelet_starts()
    world.pass_time(200)
    said = [text for text in world.told if "refuses" in text]
    assert [text.rpartition(" in ")[2] for text in said[:6]] == [
        *("1 s.", "2 s.", "4 s.", "8 s.", "16 s.", "30 s.")
    ]
    assert said[0].startswith("The kubelet refuses the plugin: no such version. The plugin tries")
    world.takes_us = True
    world.kubelet_starts()
    world.pass_time(2)
    assert world.serves


def test_a_registration_that_comes_too_late(world: World) -> None:
    """The kubelet restarts while it answers: the answer counts for the old one alone."""
    world.is_quick = False
    world.kubelet_starts()
    world.pass_time(1)
    world.work()
    world.pass_time(1)
    before = world.kubelet
    assert before is not None
    world.kubelet_starts()
    world.submit(Registered(before))
    world.pending.clear()
    world.is_quick = True
    world.pass_time(3)
    assert world.serves


def test_nobody_watches(world: World) -> None:
    """Ten seconds after the last watch has ended, the plugin registers again, and says why."""
    world.unwatch()
    world.pass_time(int(WATCH_S) - 1)
    assert not world.is_watched
    world.pass_time(2)
    assert world.serves
    assert "The kubelet does not watch the seats: the plugin registers again." in world.told


@pytest.mark.promise("bad-input-50")
def test_another_socket_in_our_place(world: World) -> None:
    """The plugin ends, and does nothing afterwards."""
    world.ours = world.identity()
    world.pass_time(1)
    assert world.error.startswith("Another process has put its socket in the place")
    world.kubelet_starts()
    world.pass_time(300)
    assert not world.pending


class PluginMachine(RuleBasedStateMachine):
    """Whatever happens, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(seconds=st.integers(1, 150))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule()
    def kubelet_starts(self) -> None:
        self.world.kubelet_starts()

    @rule()
    def kubelet_stops(self) -> None:
        self.world.kubelet_stops()

    @rule()
    def somebody_removes_our_socket(self) -> None:
        self.world.ours = None

    @rule()
    def the_watch_ends(self) -> None:
        self.world.unwatch()

    @rule(up=st.booleans())
    def scheduler(self, up: bool) -> None:
        self.world.scheduler_is_up = up

    @rule(opens_well=st.booleans(), takes_us=st.booleans(), watches=st.booleans())
    def others_behave(self, opens_well: bool, takes_us: bool, watches: bool) -> None:
        self.world.opens_well, self.world.takes_us = opens_well, takes_us
        self.world.watches = watches

    @rule(quick=st.booleans())
    def deeds_take_long(self, quick: bool) -> None:
        self.world.is_quick = quick

    @precondition(lambda self: self.world.pending)
    @rule()
    def a_deed_is_done(self) -> None:
        self.world.work()

    @invariant()
    def seats_are_as_the_scheduler_is(self) -> None:
        world = self.world
        away_s = world.now_s - world.answered_s
        assert world.advertised is world.plugin.healthy
        assert world.advertised is (away_s < UNHEALTHY_AFTER_S)

    @invariant()
    def it_goes_on(self) -> None:
        assert not self.world.error

    def teardown(self) -> None:
        """When all others behave well again, the node has its seats within the longest pause."""
        world = self.world
        world.opens_well = world.takes_us = world.watches = world.is_quick = True
        world.scheduler_is_up = True
        if world.kubelet is None:
            world.kubelet_starts()
        world.work()
        world.pass_time(int(PAUSE_S_MAX + WATCH_S) + 4)
        assert world.serves
        assert world.advertised
        assert not world.pending


TestPluginMachine = PluginMachine.TestCase
TestPluginMachine.settings = settings(max_examples=100, stateful_step_count=30)
TestPluginMachine.pytestmark = [
    pytest.mark.promise("kubernetes-18"),
    pytest.mark.promise("kubernetes-17"),
]
