"""What administrators have done: who, when, what, on whom, and what came of it.

One line of JSON for each. The latest are kept for those who ask; the file has more of them. A disk
that is full ends the file, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_gpushare.core.errors import CoreError

from ..base.errors import RequestError
from ..base.private_file import open_private

log = logging.getLogger(__name__)

AUDIT_FILE = "audit.log"
FILE_BYTES_MAX = 4 << 20
"""Of each of the two files."""
ENTRIES_MAX = 1000
_MANY, _NAME_MAX, _TEXT_MAX = 50, 50, 300
_NOTHING: Mapping[str, object] = {}
Entry = dict[str, Any]


class Audit:
    """`path` None: the latest entries are kept, and nothing is written."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,
        file_bytes_max: int = FILE_BYTES_MAX,
    ) -> None:
        self._path = path
        self._wall_clock = wall_clock
        self._file_bytes_max = file_bytes_max
        self._latest: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        if path is not None:
            self._latest.extend(_entries_in(_older(path)))
            self._latest.extend(_entries_in(path))

    @contextlib.contextmanager
    def of(
        self, who: str, verb: str, on: str = "", what: Mapping[str, object] = _NOTHING
    ) -> Iterator[None]:
        """Notes what is done inside. What is refused there is noted with the reason."""
        try:
            yield
        except (RequestError, CoreError) as error:
            self.note(who, verb, on, what, str(error))
            raise
        self.note(who, verb, on, what, "done")

    def note(self, who: str, verb: str, on: str, what: Mapping[str, object], result: str) -> None:
        """`on` names a device or `owner:notebook`; it is empty for what concerns all."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall_clock()))
        entry = {
            "at": at,
            "who": who,
            "verb": verb,
            "on": on,
            "what": {name[:_NAME_MAX]: str(what[name])[:_TEXT_MAX] for name in list(what)[:_MANY]},
            "result": result[:_TEXT_MAX],
        }
        self._latest.append(entry)
        log.info("audit: %s", json.dumps(entry))
        if self._path is not None:
            try:
                self._write(self._path, json.dumps(entry).encode() + b"\n")
            except OSError as error:
                log.error("%s cannot be written: %s", self._path, error.strerror)

    def latest(self, count: int) -> list[Entry]:
        """The newest last."""
        return list(self._latest)[-count:] if count > 0 else []

    def _write(self, path: Path, line: bytes) -> None:
        """A file that is full makes place for another one; the one before it goes."""
        fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            if os.fstat(fd).st_size >= self._file_bytes_max:
                path.replace(_older(path))
                os.close(fd)
                fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(fd, line)
        finally:
            os.close(fd)


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _entries_in(path: Path) -> Iterator[Entry]:
    """Of a file that may not be there, or that a crash has cut off."""
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.keys() >= {"at", "who", "verb", "on"}:
                    yield entry
