"""The hook's pure parts (turn_state.c, idle_rule.c, window_pace.c, swap_plan.c, cgroup_parse.c,
ipc_handle.c), for tests in Python."""

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
    REMAKE = 23


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
        for name in ("sp_host_wanted", "cg_limit", "cg_stat", "cg_meminfo", "cg_room"):
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
        turns: bool = True,
    ) -> None:
        self._c = pure.library
        self.now_ms = 1_000_000
        self._state = ctypes.c_void_p(
            self._c.ts_new(idle_ms, reconnect_s, fallback, int(turns), U64(self.now_ms))
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
        idle_ms: int = 0,
        busy: bool = False,
        turn_lost: bool = False,
        memory_away: bool = False,
        remakes: bool = False,
    ) -> Act:
        return Act(
            self._c.ts_event(
                self._state,
                int(kind),
                U64(self.now_ms),
                U64(turn),
                waiters,
                tenants,
                idle_ms,
                int(busy),
                int(turn_lost),
                int(memory_away),
                int(remakes),
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

    def ask(self, under_way: int) -> int:
        return int(self._c.pace_ask(self._pace, ctypes.c_uint32(under_way)))

    def behind(self) -> None:
        self._c.pace_behind(self._pace)

    @property
    def launches_per_event(self) -> int:
        return int(self._c.pace_launches_per_event(self._pace))

    @property
    def depth(self) -> int:
        return int(self._c.pace_depth(self._pace))


class Goal(enum.IntEnum):
    """enum mover_goal."""

    REST = 0
    PARK = 1
    RESTORE = 2


class Step(enum.IntEnum):
    """enum swap_step."""

    NOTHING = 0
    WAIT = 1
    UNMAP = 2
    LEAVE = 3
    COPY = 4
    COME = 5
    CONFIRM = 6
    ROLL_BACK = 7
    GIVE_UP = 8


class ChunkSums(ctypes.Structure):
    """struct chunk_sums."""

    _fields_ = (
        ("bytes_resident", U64),
        ("bytes_movable", U64),
        ("bytes_managed", U64),
        ("bytes_parked", U64),
        ("bytes_kept", U64),
        ("bytes_next", U64),
        ("bytes_copied", U64),
        ("bytes_back", U64),
        ("moving", ctypes.c_uint32),
        ("to_leave", ctypes.c_uint32),
        ("to_come", ctypes.c_uint32),
        ("to_take_back", ctypes.c_uint32),
        ("to_copy", ctypes.c_uint32),
        ("copies", ctypes.c_uint32),
        ("copied", ctypes.c_uint32),
    )


class SwapView(ctypes.Structure):
    """struct swap_view."""

    _anonymous_ = ("chunks",)

    _fields_ = (
        ("goal", ctypes.c_int),
        ("flights", ctypes.c_uint32),
        ("flight_bytes", U64),
        ("leaving_bytes", U64),
        ("bytes_over", U64),
        ("bytes_free", U64),
        ("bytes_to_copy", U64),
        ("chunks", ChunkSums),
        ("arrives", ctypes.c_bool),
        ("comes_ahead", ctypes.c_bool),
        ("all_here", ctypes.c_bool),
        ("host_is_short", ctypes.c_bool),
        ("host_is_tight", ctypes.c_bool),
        ("stream_is_short", ctypes.c_bool),
        ("room_is_short", ctypes.c_bool),
        ("has_failed", ctypes.c_bool),
    )

    def step(self, pure: Pure) -> Step:
        return Step(pure.library.sp_plan(ctypes.byref(self)))


def host_is_tight(pure: Pure, *, room: int, parked: int) -> bool:
    return bool(pure.library.sp_host_is_tight(U64(room), U64(parked)))


class HostStep(enum.IntEnum):
    """enum swap_host_step."""

    KEEP = 0
    PREPARE = 1
    TRIM = 2


class HostView(ctypes.Structure):
    """struct swap_host_view."""

    _fields_ = (
        ("free_bytes", U64),
        ("begun_bytes", U64),
        ("hint_bytes", U64),
        ("movable_bytes", U64),
        ("excess_ms", U64),
        ("room_bytes", U64),
        ("is_short", ctypes.c_bool),
    )

    def __init__(self, *, room_bytes: int = 2**40, **figures: int) -> None:
        super().__init__(room_bytes=room_bytes, **figures)

    def step(self, pure: Pure) -> HostStep:
        return HostStep(pure.library.sp_host_plan(ctypes.byref(self)))

    def wanted(self, pure: Pure) -> int:
        return int(pure.library.sp_host_wanted(ctypes.byref(self)))


class Cgroup:
    """cgroup_parse.c."""

    NO_LIMIT = 2**64 - 1

    def __init__(self, pure: Pure) -> None:
        self._c = pure.library

    def limit(self, text: str) -> int:
        return int(self._c.cg_limit(text.encode()))

    def stat(self, text: str, key: str) -> int:
        return int(self._c.cg_stat(text.encode(), key.encode()))

    def meminfo(self, text: str, key: str) -> int:
        return int(self._c.cg_meminfo(text.encode(), key.encode()))

    def path(self, text: str, controller: str, room: int = 256) -> str | None:
        path = ctypes.create_string_buffer(room)
        found = self._c.cg_path(text.encode(), controller.encode(), path, ctypes.c_size_t(room))
        return path.value.decode() if found else None

    def parents(self, path: str) -> list[str]:
        """The path and all above it."""
        text = ctypes.create_string_buffer(path.encode())
        levels = [path]
        while self._c.cg_parent(text):
            levels.append(text.value.decode())
        return levels

    def room(self, limit: int, used: int, reclaimable: int = 0) -> int:
        return int(self._c.cg_room(U64(limit), U64(used), U64(reclaimable)))

    def is_short(self, limit: int, used: int, reclaimable: int = 0) -> bool:
        return bool(self._c.cg_is_short(U64(limit), U64(used), U64(reclaimable)))
