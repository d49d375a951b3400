"""When the plugin opens its socket, registers, and calls its seats healthy. Pure.

`handle(event, now_s=…)` returns what to do; a failed deed comes back as an event. The rules:

- The kubelet knows us as long as its socket is the one that we registered at. One that is made anew
  is another kubelet, which has also removed our socket: we open ours again, and register.
- The kubelet watches the list of our seats. If nobody watches it for `WATCH_S` after a
  registration, or after the last watch has ended, we register again.
- A failed attempt is repeated after a pause that doubles, up to `PAUSE_S_MAX`.
- Seats turn unhealthy when no scheduler has answered for `UNHEALTHY_AFTER_S`, and healthy at its
  next answer: a pod that is admitted while its seat is unhealthy fails for good, and a scheduler
  that is being updated is back sooner. Time in which this process did not run does not count.
- Whoever puts another socket in the place of ours serves this resource; two of us would take it
  from each other for ever, so we end.
"""

from __future__ import annotations

from dataclasses import dataclass

UNHEALTHY_AFTER_S = 120.0
WATCH_S = 10.0
PAUSE_S_MIN = 1.0
PAUSE_S_MAX = 30.0
LOOK_S = 1.0
"""So often a look is due. Where they are further apart, we ourselves did not run meanwhile."""

Identity = tuple[int, ...]
"""Tells a file from one that is made anew under its name."""

# ---- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at the kubelet's directory: its socket, and ours; None for one that is not there."""

    kubelet: Identity | None
    ours: Identity | None


@dataclass(frozen=True, slots=True)
class SchedulerAnswered:
    """Whatever it said."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Our socket is there, and served."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """`why` is a clause, as it stands behind a colon."""

    why: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The kubelet that served the socket `kubelet` has taken us."""

    kubelet: Identity


@dataclass(frozen=True, slots=True)
class RegisterFailed:
    """It has refused us (`refused`), or did not answer."""

    why: str
    refused: bool


@dataclass(frozen=True, slots=True)
class WatchBegan:
    """A kubelet asks for the list of seats."""


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """And asks no more."""


Event = (
    Looked
    | SchedulerAnswered
    | Opened
    | OpenFailed
    | Registered
    | RegisterFailed
    | WatchBegan
    | WatchEnded
)

# ---- actions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Serve our socket, anew if it was served; Opened or OpenFailed follows."""


@dataclass(frozen=True, slots=True)
class Register:
    """At the socket `kubelet`; Registered or RegisterFailed follows."""

    kubelet: Identity


@dataclass(frozen=True, slots=True)
class Advertise:
    """Tell all who watch, and who will, how the seats are."""

    healthy: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """A line for the log: what is so, and what to do where something is wrong."""

    text: str
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """With an error: another process is in our place."""

    text: str


Action = Open | Register | Advertise | Tell | End


class Registration:
    """What the plugin knows of its kubelet and its scheduler."""

    def __init__(self, *, now_s: float, unhealthy_after_s: float = UNHEALTHY_AFTER_S) -> None:
        self._unhealthy_after_s = unhealthy_after_s
        self._last_s = now_s
        self._answered_s = now_s
        """When the scheduler last did. One that is just being started has as long as any other."""
        self.healthy = True
        self._kubelet: Identity | None = None
        self._looked = False
        self._ours: Identity | None = None
        self._opening = self._registering = self._ended = False
        self._known_to: Identity | None = None
        """The kubelet's socket at which we have registered."""
        self._watches = 0
        self._unwatched_s = now_s
        """Since when nobody watches, while nobody does."""
        self._failures = 0
        self._next_try_s = now_s

    @property
    def is_watched(self) -> bool:
        return self._watches > 0

    def silent_s(self, now_s: float) -> float:
        """For how long no scheduler has answered."""
        return now_s - self._answered_s

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """What follows from the event; nothing once the plugin has to end."""
        if self._ended:
            return []
        self._answered_s += max(0.0, now_s - self._last_s - 2 * LOOK_S)
        self._last_s = now_s
        actions: list[Action] = []
        match event:
            case Looked():
                actions += self._look(event)
            case SchedulerAnswered():
                self._answered_s = now_s
            case Opened(identity):
                self._opening, self._ours = False, identity
                self._known_to = None
            case OpenFailed(why):
                self._opening = False
                actions += self._failed(f"The plugin's socket cannot be opened: {why}.", now_s)
            case Registered(kubelet):
                self._registering, self._known_to = False, kubelet
                self._failures, self._unwatched_s = 0, now_s
                actions.append(Tell("The kubelet has taken the seats of this node."))
            case RegisterFailed():
                self._registering = False
                actions += self._failed(_why_not_registered(event), now_s)
            case WatchBegan():
                self._watches += 1
            case WatchEnded():
                self._watches -= 1
                self._unwatched_s = now_s
        if not any(isinstance(action, End) for action in actions):
            actions += self._health(now_s)
            actions += self._next_step(now_s)
        return actions

    def _look(self, seen: Looked) -> list[Action]:
        if self._kubelet is not None and seen.kubelet is None:
            told: list[Action] = [Tell("The kubelet's socket is gone; the plugin waits for it.")]
        elif not self._looked and seen.kubelet is None:
            told = [Tell("There is no kubelet's socket yet; the plugin waits for it.")]
        else:
            told = []
        if seen.kubelet != self._kubelet:  # nothing that an earlier kubelet did counts for this one
            self._failures, self._next_try_s = 0, float("-inf")
        self._looked, self._kubelet = True, seen.kubelet
        if self._opening or self._ours is None or seen.ours == self._ours:
            return told
        if seen.ours is not None:
            self._ended = True
            return [
                End(
                    "Another process has put its socket in the place of this plugin's. Let one "
                    "plugin run on each node."
                )
            ]
        self._ours = self._known_to = None
        return told

    def _health(self, now_s: float) -> list[Action]:
        healthy = now_s - self._answered_s < self._unhealthy_after_s
        if healthy == self.healthy:
            return []
        self.healthy = healthy
        if healthy:
            return [Advertise(True), Tell("The scheduler answers again: the seats are healthy.")]
        return [
            Advertise(False),
            Tell(
                f"No scheduler has answered for {self._unhealthy_after_s:g} s: the seats are "
                f"unhealthy, and no new pod gets one. Look into the log of the node's scheduler.",
                is_wrong=True,
            ),
        ]

    def _next_step(self, now_s: float) -> list[Action]:
        """What is missing first: a socket, then the kubelet that knows of it."""
        busy = self._opening or self._registering
        if busy or self._kubelet is None or now_s < self._next_try_s:
            return []
        if self._ours is None:
            self._opening = True
            return [Open()]
        if self._known_to == self._kubelet and not self._is_forgotten(now_s):
            return []
        told: list[Action] = []
        if self._known_to == self._kubelet:
            told = [Tell("The kubelet does not watch the seats: the plugin registers again.")]
        self._registering, self._known_to = True, None
        return [*told, Register(self._kubelet)]

    def _is_forgotten(self, now_s: float) -> bool:
        return not self._watches and now_s - self._unwatched_s >= WATCH_S

    def _failed(self, what: str, now_s: float) -> list[Action]:
        pause_s = min(PAUSE_S_MAX, PAUSE_S_MIN * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._next_try_s = now_s + pause_s
        return [Tell(f"{what} The plugin tries again in {pause_s:g} s.", is_wrong=True)]


def _why_not_registered(event: RegisterFailed) -> str:
    if event.refused:
        return f"The kubelet refuses the plugin: {event.why}."
    return f"The kubelet does not answer: {event.why}."
