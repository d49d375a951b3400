"""Ending by request, so that a newer version can serve in this one's place."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from jupyter_gpushare.client.connection import user_name

from ..base.errors import RequestError
from ..identity.caller import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """`started_to_stay`: somebody looks after this scheduler and starts it again as they want it;
    one that was started on demand ends by itself when nobody uses it, or here. `processes` are
    those that have the GPU open or that are expected back."""

    end: Callable[[str], None]
    processes: Callable[[], int]
    started_to_stay: bool

    def asked_by(self, caller: Caller) -> None:
        """End soon, if that costs nobody anything; raises RequestError."""
        if not caller.is_admin:
            raise RequestError(
                HTTPStatus.FORBIDDEN,
                f"This scheduler is ended by root and {user_name(os.getuid())} alone. Ask them.",
            )
        if self.started_to_stay:
            raise RequestError(
                HTTPStatus.FORBIDDEN,
                "This scheduler was started to stay. Restart it where it was started, when no cell "
                "runs.",
            )
        if count := self.processes():
            raise RequestError(
                HTTPStatus.CONFLICT,
                f"Processes that have the GPU open: {count}. Shut their kernels down, or wait for "
                f"their end.",
            )
        self.end(f"asked by {caller.name}, to be replaced")
