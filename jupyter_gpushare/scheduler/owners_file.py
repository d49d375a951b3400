"""What owners owe, and what is left of their credits, over a restart of the scheduler: a small file
in the runtime directory.

The core's times are virtual, and those of a process begin anew. So the file has device time alone:
by how much an owner was ahead of its share, and its credit. Both are as they were when the file was
written. While no scheduler runs, nobody pays and nothing fills up.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpushare.core.events import OwnerRemembered
from jupyter_gpushare.core.ids import DeviceId, TenantId

from .base.private_file import put_in_place

log = logging.getLogger(__name__)

OWNERS_FILE = "owners.json"
FORMAT = 1
WRITE_EVERY_S = 30.0
OLD_S = 86_400.0
"""What was owed on another day is forgiven."""
_BYTES_MAX = 64 << 20
_CAUSE = "a scheduler before this one"


class OwnersFile:
    """`wall_clock` is the time of day."""

    def __init__(self, path: Path, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall_clock = wall_clock
        self._written: Sequence[OwnerRemembered] | None = None

    def read(self) -> list[OwnerRemembered]:
        """Empty where there is none, or none that counts."""
        try:
            with self._path.open(encoding="utf-8") as file:
                text = file.read(_BYTES_MAX)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read (%s): nobody owes anything", self._path, error)
            return []
        try:
            said = json.loads(text)
            if said["owners"] != FORMAT or not 0 <= self._wall_clock() - said["wall_s"] <= OLD_S:
                log.warning("%s is of another time: nobody owes anything", self._path)
                return []
            return [_owner(each) for each in said["remembered"]]
        except (
            ValueError,
            ArithmeticError,  # a whole number that no floating one comes near
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            log.warning("%s is not as we write it (%r): nobody owes anything", self._path, error)
            return []

    def write(self, owners: Sequence[OwnerRemembered]) -> None:
        """Under its name the file is complete, whenever somebody looks."""
        if owners == self._written:
            return
        said = {
            "owners": FORMAT,
            "wall_s": self._wall_clock(),
            "remembered": [
                {
                    "owner": each.owner,
                    "credit_s": each.credit_s,
                    "debts": dict(each.debts),
                    "used": each.used,
                }
                for each in owners
            ],
        }
        try:
            put_in_place(self._path, said)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error.strerror)
            return
        self._written = list(owners)


def _owner(said: dict[str, Any]) -> OwnerRemembered:
    debts = {DeviceId(str(device)): _seconds(debt) for device, debt in said["debts"].items()}
    if any(debt_s < 0 for debt_s in debts.values()):
        raise ValueError("a debt is below 0")
    return OwnerRemembered(
        owner=str(said["owner"]),
        credit_s=_seconds(said["credit_s"]),
        debts=tuple(debts.items()),
        used=tuple(_used(each) for each in said.get("used", ())),
        cause=_CAUSE,
    )


def _used(said: list[Any]) -> tuple[TenantId, DeviceId, float]:
    tenant, device, used = said
    return TenantId(str(tenant)), DeviceId(str(device)), _seconds(used)


def _seconds(said: object) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(said):
        raise ValueError(f"{said!r} is not a time")
    return float(said)
