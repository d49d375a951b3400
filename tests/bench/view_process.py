"""The view as a process of its own, for its benchmark: the real application, without a hub. Whoever
asks is an administrator; nodes show tokens of a file, as everywhere.

`python -m tests.bench.view_process FOLDER PORT` serves until it gets SIGTERM.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tornado.web import RequestHandler

from jupyter_gpushare.view import app
from jupyter_gpushare.view.callers import Viewer
from jupyter_gpushare.view.credentials import EitherOf, FileTokens
from jupyter_gpushare.view.service import View, ViewOptions, tune_interpreter
from tests.bench.view_stand_in import missing_parts

PREFIX = "/services/gpushare-view/"
TOKENS = "tokens"
DATA = "data"
METRICS_TOKEN = "metrics-token"


class Everybody:
    """Is an administrator here."""

    async def caller(self, handler: RequestHandler) -> Viewer | None:
        return Viewer("admin", is_admin=True)

    def routes(self, prefix: str) -> list[tuple[Any, ...]]:
        return []


def token_of(node: str) -> str:
    return f"token-of-{node}"


def prepare(folder: Path, nodes: Sequence[str]) -> None:
    """What the view reads when it starts."""
    lines = [f"{node} {hashlib.sha256(token_of(node).encode()).hexdigest()}\n" for node in nodes]
    (folder / TOKENS).write_text("".join(lines))
    (folder / TOKENS).chmod(0o600)
    (folder / METRICS_TOKEN).write_text("prometheus")


async def serve(folder: Path, port: int) -> None:
    app.PARTS = (*missing_parts(), *app.PARTS)
    options = ViewOptions(
        host="127.0.0.1",
        port=port,
        prefix=PREFIX,
        data_dir=folder / DATA,
        metrics_token_file=folder / METRICS_TOKEN,
    )
    tune_interpreter()
    view = View(options, Everybody(), EitherOf([FileTokens(folder / TOKENS)]))
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    view.start()
    await ending.wait()
    await view.end()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
