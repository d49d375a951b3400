"""The hook's pure parts (turn_state.c, idle_rule.c, window_pace.c), for tests in Python."""

from __future__ import annotations

import ctypes
import enum
from pathlib import Path

U64 = ctypes.c_uint64
NEVER = 2**64 - 1


class Phase(enum.IntEnum):
    NONE = 0
    ASKED = 1
    HELD = 2
    CLOSING = 3
    UNSCHEDULED = 4
    RESTORING = 5


class Happens(enum.IntEnum):
    """enum turn_event_kind."""

    CALLS_WAIT = 0
    NO_CALLS_WAIT = 1
    CONNECTED = 2
    DISCONNECTED = 3
    SETTINGS = 4
    GRANTED = 5
    RECALLED = 6
    REOPENED = 7
    CONTENTION = 8
    CELL_BEGAN = 9
    CELL_ENDED = 10
    DEVICE_OPENED = 11
    LAST_DEVICE_CLOSED = 12
    CONTEXT_FAILED = 13
    SAMPLED = 14
    PROBED = 15
    DRAINED = 16
    STALLED = 17
    TICK = 18
    HOLD_BEGAN = 19
    HOLD_ENDED = 20
    RESTORED = 21
    RESTORE_FAILED = 22


class Act(enum.IntFlag):
    """enum turn_action."""

    NONE = 0
    SHUT = 1
    OPEN = 2
    DROP = 4
    STALL = 8
    ASK = 16
    WITHDRAW = 32
    PROBE = 64
    SAY_WAITING = 128
    SAY_RUNNING = 256
    RESTORE = 512


class Pure:
    """The shared object of the pure parts."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.ts_new.restype = ctypes.c_void_p
        self.library.pace_new.restype = ctypes.c_void_p
        for name in ("ts_turn_id", "ts_dropped_turn_id", "ts_wake_ms"):
            getattr(self.library, name).restype = U64


class TurnState:
    """One client's state and its own clock, in milliseconds."""

    def __init__(
        self,
        pure: Pure,
        *,
        idle_ms: int = 50,
        reconnect_s: int = 30,
        fallback: int = 0,
        anti_thrash: bool = True,
    ) -> None:
        self._c = pure.library
        self.now_ms = 1_000_000
        self._state = ctypes.c_void_p(
            self._c.ts_new(idle_ms, reconnect_s, fallback, int(anti_thrash), U64(self.now_ms))
        )

    def __del__(self) -> None:
        self._c.ts_free(self._state)

    def happens(
        self,
        kind: Happens,
        *,
        turn: int = 0,
        waiters: int = 0,
        tenants: int = 2,
        busy: bool = False,
        turn_lost: bool = False,
        memory_away: bool = False,
    ) -> Act:
        return Act(
            self._c.ts_event(
                self._state,
                int(kind),
                U64(self.now_ms),
                U64(turn),
                waiters,
                tenants,
                int(busy),
                int(turn_lost),
                int(memory_away),
            )
        )

    @property
    def phase(self) -> Phase:
        return Phase(self._c.ts_phase(self._state))

    @property
    def turn(self) -> int:
        return int(self._c.ts_turn_id(self._state))

    @property
    def dropped(self) -> tuple[int, int]:
        """Turn and reason of the latest drop."""
        reason = int(self._c.ts_dropped_reason(self._state))
        return int(self._c.ts_dropped_turn_id(self._state)), reason

    @property
    def wake_ms(self) -> int:
        return int(self._c.ts_wake_ms(self._state, U64(self.now_ms)))

    @property
    def wants_samples(self) -> bool:
        return bool(self._c.ts_wants_samples(self._state))

    @property
    def windowed(self) -> bool:
        return bool(self._c.ts_windowed(self._state))


class Pace:
    """A window's pace."""

    def __init__(self, pure: Pure, window_ms: float = 20) -> None:
        self._c = pure.library
        self._window_ns = int(window_ms * 1e6)
        self._pace = ctypes.c_void_p(self._c.pace_new())

    def __del__(self) -> None:
        self._c.pace_free(self._pace)

    def measured(self, group_ns: float) -> None:
        self._c.pace_measured(self._pace, U64(int(group_ns)), U64(self._window_ns))

    @property
    def launches_per_event(self) -> int:
        return int(self._c.pace_launches_per_event(self._pace))

    @property
    def depth(self) -> int:
        return int(self._c.pace_depth(self._pace))
