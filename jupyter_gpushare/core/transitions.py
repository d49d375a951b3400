"""The states of clients and tenants, and every way from one to another, as data.

A transition that is in no table raises InvalidTransition. docs/states.md is generated from here.

- A **client** is a process with a gate. It *passes* when its gate is open although it has no
  live device (none opened, or all of them failed or lost): nothing of it can run there, and its
  calls are to meet the driver's own errors. A process that comes back with a turn from before
  also passes, until it names its devices.
- A **tenant** has the turn or is in the queue. It is *stalled* while a recall is taken back,
  because its work in flight waits for a call at one of its own gates.
"""

from __future__ import annotations

import enum


class _Word(enum.Enum):
    """Members are found in tables all the time: by what they are, not by their names."""

    __hash__ = object.__hash__


class ClientState(_Word):
    """Where a process stands with its gate."""

    IDLE = "idle"
    WAITING = "waiting"
    HOLDING = "holding"
    RECALLED = "recalled"
    RECALLED_WAITING = "recalled, waiting"
    PASSING = "passing"


class ClientTrigger(_Word):
    """What moves a client."""

    ASK = "a call waits at its gate"
    WITHDRAW = "no call waits any more"
    GRANT = "its tenant has the turn"
    RECALL = "asked to give back"
    REOPEN = "the recall is taken back"
    DROP = "gives back, or a context failed"
    PASS = "no live device is left"
    JOIN = "opens a device"


class TenantState(_Word):
    """Where a tenant stands with the turn."""

    IDLE = "idle"
    WAITING = "waiting"
    HOLDING = "holding"
    RECALLED = "recalled"
    STALLED = "stalled"


class TenantTrigger(_Word):
    """What moves a tenant."""

    QUEUE = "a client of it waits"
    LEAVE = "no client of it waits any more"
    GRANT = "all its devices are free"
    CLAIM = "a client of it has an open gate already"
    RECALL = "the quantum is over, or a conflict"
    STALL = "the drain stalls"
    RESUME = "nobody waits any more, or turns are off"
    END = "its last client dropped the turn"


_C, _CT = ClientState, ClientTrigger

CLIENT_TRANSITIONS: dict[tuple[ClientState, ClientTrigger], ClientState] = {
    (_C.IDLE, _CT.ASK): _C.WAITING,
    (_C.IDLE, _CT.WITHDRAW): _C.IDLE,
    (_C.IDLE, _CT.PASS): _C.PASSING,
    (_C.WAITING, _CT.ASK): _C.WAITING,
    (_C.WAITING, _CT.WITHDRAW): _C.IDLE,
    (_C.WAITING, _CT.GRANT): _C.HOLDING,
    (_C.WAITING, _CT.PASS): _C.PASSING,
    (_C.HOLDING, _CT.ASK): _C.HOLDING,
    (_C.HOLDING, _CT.WITHDRAW): _C.HOLDING,
    (_C.HOLDING, _CT.RECALL): _C.RECALLED,
    (_C.HOLDING, _CT.DROP): _C.IDLE,
    (_C.HOLDING, _CT.PASS): _C.PASSING,
    (_C.RECALLED, _CT.ASK): _C.RECALLED_WAITING,
    (_C.RECALLED, _CT.WITHDRAW): _C.RECALLED,
    (_C.RECALLED, _CT.REOPEN): _C.HOLDING,
    (_C.RECALLED, _CT.DROP): _C.IDLE,
    (_C.RECALLED_WAITING, _CT.ASK): _C.RECALLED_WAITING,
    (_C.RECALLED_WAITING, _CT.WITHDRAW): _C.RECALLED,
    (_C.RECALLED_WAITING, _CT.REOPEN): _C.HOLDING,
    (_C.RECALLED_WAITING, _CT.DROP): _C.WAITING,
    (_C.PASSING, _CT.ASK): _C.PASSING,
    (_C.PASSING, _CT.WITHDRAW): _C.PASSING,
    (_C.PASSING, _CT.DROP): _C.IDLE,
    (_C.PASSING, _CT.JOIN): _C.HOLDING,
}

_T, _TT = TenantState, TenantTrigger

TENANT_TRANSITIONS: dict[tuple[TenantState, TenantTrigger], TenantState] = {
    (_T.IDLE, _TT.QUEUE): _T.WAITING,
    (_T.IDLE, _TT.CLAIM): _T.HOLDING,
    (_T.WAITING, _TT.LEAVE): _T.IDLE,
    (_T.WAITING, _TT.GRANT): _T.HOLDING,
    (_T.WAITING, _TT.CLAIM): _T.HOLDING,
    (_T.HOLDING, _TT.RECALL): _T.RECALLED,
    (_T.HOLDING, _TT.END): _T.IDLE,
    (_T.RECALLED, _TT.STALL): _T.STALLED,
    (_T.RECALLED, _TT.RESUME): _T.HOLDING,
    (_T.RECALLED, _TT.END): _T.IDLE,
    (_T.STALLED, _TT.RECALL): _T.RECALLED,
    (_T.STALLED, _TT.RESUME): _T.HOLDING,
    (_T.STALLED, _TT.END): _T.IDLE,
}

WITH_TURN = frozenset({_C.HOLDING, _C.RECALLED, _C.RECALLED_WAITING})
"""Clients in these states keep their tenant's turn from ending."""

ASKED_BACK = frozenset({_C.RECALLED, _C.RECALLED_WAITING})
"""Clients in these states owe an answer to a recall."""

WANTING = frozenset({_C.WAITING, _C.RECALLED_WAITING})
"""Clients in these states have a call that waits for a turn."""
