"""The file in which GPU time outlives the view: sqlite, written by one thread and read by another.

What has been counted, and the counters that it was counted from, are written at once: a view that
ends in the middle counts again exactly what is not in the file. A file that cannot be read is put
aside under another name, and a new one is begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from .fleet import Fleet
from .usage import ACCOUNT, DAY_S, HUB, HeardOf, Known, UsageChanges, UsageRecord
from .usage_table import Question, Row, lines_of

log = logging.getLogger(__name__)

USAGE_FILE = "usage.sqlite"
FORMAT = 1
WRITE_EVERY_S = 5.0
KEPT_DAYS = 400
"""On which somebody had a GPU."""
_SPOOL_BYTES = 1 << 20
_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
  day INTEGER, kind TEXT, owner TEXT, grp TEXT, node TEXT, seconds REAL NOT NULL,
  PRIMARY KEY (day, kind, owner, grp, node)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes (
  node TEXT PRIMARY KEY, boot TEXT NOT NULL, wall_s REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (
  node TEXT, tenant TEXT, held_s REAL NOT NULL, PRIMARY KEY (node, tenant)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS written (id INTEGER PRIMARY KEY CHECK (id = 1), wall_s REAL NOT NULL);
"""
_ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds
"""
_TIDY = """
DELETE FROM usage WHERE day < (
  SELECT min(day) FROM (SELECT DISTINCT day FROM usage ORDER BY day DESC LIMIT ?)
)
"""
_READ = """
SELECT {days}, {name}, CASE kind WHEN '{account}' THEN node ELSE '' END AS account_on, SUM(seconds)
FROM usage WHERE day BETWEEN :first AND :last AND grp {which} ''
  AND (:owner IS NULL OR (kind = '{hub}' AND owner = :owner))
GROUP BY {grouped} ORDER BY {grouped}
"""


class UsageFileError(Exception):
    """One sentence on what is wrong, and one on what to do."""


class UsageFile:
    """Counts what nodes report, and keeps it. Its methods are called by one thread, the view's.

    `problem` is what keeps the file from being written now; empty: nothing."""

    def __init__(
        self,
        path: Path,
        *,
        now_s: float,
        accounts_are_users: bool = False,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises UsageFileError where another view has the file."""
        self._path = path
        self._wall_clock = wall_clock
        self._lock = _locked(path)
        self._file = _Sqlite(path)
        known = self._file.known(wall_clock())
        self.usage = UsageRecord(
            known, now_s=now_s, wall_s=wall_clock(), accounts_are_users=accounts_are_users
        )
        self._writer = ThreadPoolExecutor(1, "usage-writer")
        self._reader = ThreadPoolExecutor(1, "usage-reader")
        self._writing: tuple[Future[bool], UsageChanges] | None = None
        self._written_at_s = now_s
        self.problem = ""

    def note(self, fleet: Fleet, changed: Iterable[str], *, now_s: float) -> None:
        """These nodes have changed. Writes what is due."""
        self.usage.take(fleet, changed, now_s=now_s, wall_s=self._wall_clock())
        if now_s - self._written_at_s >= WRITE_EVERY_S:
            self._written_at_s = now_s
            self._write()

    def table(self, question: Question) -> Future[IO[bytes]]:
        """The table as CSV, from its beginning; whoever asked closes it."""
        self._write()
        writing = None if self._writing is None else self._writing[0]
        return self._reader.submit(_table, self._path, question, writing)

    def close(self) -> None:
        """Everything is written."""
        self._settle(wait=True)
        self._write()
        self._settle(wait=True)
        self._writer.shutdown()
        self._reader.shutdown(cancel_futures=True)
        self._file.close()
        self._lock.close()

    def _write(self) -> None:
        """What could not be written goes first; until then, the rest is kept in memory."""
        failed = self._settle(wait=False)
        if self._writing is None:
            changes = failed or self.usage.changes()
            done = self._writer.submit(self._file.write, changes, self._wall_clock())
            self._writing = done, changes

    def _settle(self, *, wait: bool) -> UsageChanges | None:
        """Returns what has failed to be written."""
        if self._writing is None or not (wait or self._writing[0].done()):
            return None
        (done, changes), self._writing = self._writing, None
        error = done.exception()
        if error is None:
            self.problem = ""
            if done.result():
                self.usage.tell_all()
            return None
        if not isinstance(error, sqlite3.Error | OSError):
            raise error
        said = (
            f"The GPU-hours cannot be written to {self._path}: {error}. Make room there, or make "
            f"it writable; until then they are kept in memory."
        )
        if said != self.problem:
            log.error("%s", said)
        self.problem = said
        return changes


class _Sqlite:
    """The file. After `known`, only the writing thread uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._tidied_day = -1

    def known(self, wall_s: float) -> Known:
        """Empty where there is no file, or none that can be read."""
        try:
            connection = self._open()
            written = connection.execute("SELECT wall_s FROM written").fetchone()
            return Known(
                until_wall_s=wall_s if written is None else _seconds(written[0]),
                nodes=[
                    HeardOf(str(node), str(boot), _seconds(at_s))
                    for node, boot, at_s in connection.execute("SELECT * FROM nodes")
                ],
                counters=[
                    (str(node), str(tenant), _seconds(held_s))
                    for node, tenant, held_s in connection.execute("SELECT * FROM counters")
                ],
            )
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            self._give_up(error, wall_s)
            return Known(until_wall_s=wall_s)

    def write(self, changes: UsageChanges, wall_s: float) -> bool:
        """All of it or nothing. True: the file has been begun anew, and knows no other counters.
        Raises sqlite3.Error and OSError."""
        try:
            self._write(self._open(), changes, wall_s)
            return False
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise
            self._give_up(error, wall_s)
            self._write(self._open(), changes, wall_s)
            return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(
                self._path, timeout=30, isolation_level=None, check_same_thread=False
            )
            try:
                _prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _give_up(self, error: Exception, wall_s: float) -> None:
        """A damaged file goes aside. One that cannot be reached is tried again."""
        self.close()
        if isinstance(error, sqlite3.Error | OSError) and not _is_damaged(error):
            log.error("%s cannot be opened: %s. Look at its folder.", self._path, error)
            return
        aside = self._path.with_name(f"{self._path.name}.unreadable-{int(wall_s)}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).replace(f"{aside}{suffix}")
        log.error(
            "%s cannot be read (%s). It is %s now, and a new one has been begun; look there for "
            "the GPU-hours until today.",
            self._path,
            error,
            aside.name,
        )

    def _write(self, connection: sqlite3.Connection, changes: UsageChanges, wall_s: float) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_ADD, [(*line, each) for line, each in changes.lines.items()])
            for name in changes.cleared:
                connection.execute("DELETE FROM counters WHERE node = ?", (name,))
            connection.executemany(
                "DELETE FROM nodes WHERE node = ?", [(name,) for name in changes.forgotten]
            )
            connection.executemany("REPLACE INTO nodes VALUES (?, ?, ?)", changes.nodes)
            connection.executemany(
                "DELETE FROM counters WHERE node = ? AND tenant = ?", changes.ended
            )
            connection.executemany("REPLACE INTO counters VALUES (?, ?, ?)", changes.counters)
            connection.execute("REPLACE INTO written VALUES (1, ?)", (wall_s,))
            self._tidy(connection, wall_s)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _tidy(self, connection: sqlite3.Connection, wall_s: float) -> None:
        """Once a day: the oldest days go. They are counted, so that a clock that is wrong for a
        while takes no history away."""
        day = int(wall_s // DAY_S)
        if day != self._tidied_day:
            connection.execute(_TIDY, (KEPT_DAYS,))
            self._tidied_day = day


class _OtherFormat(sqlite3.DatabaseError):
    """A newer view wrote it, or it is no file of ours."""


def _prepare(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if found != FORMAT and (found or tables):
        raise _OtherFormat(f"it has format {found}, and this view reads format {FORMAT}")
    if (said := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise _OtherFormat(str(said))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={FORMAT}; COMMIT;")


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _is_damaged(error: Exception) -> bool:
    """Else the file may be good: the disk is full, say, or it may not be read."""
    if isinstance(error, _OtherFormat):
        return True
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error,
        sqlite3.OperationalError
        | sqlite3.IntegrityError
        | sqlite3.ProgrammingError
        | sqlite3.InternalError
        | sqlite3.DataError
        | sqlite3.NotSupportedError,
    )


def _locked(path: Path) -> IO[bytes]:
    """As long as it is open, no other view has the file: each would count the same hours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.with_name(f"{path.name}.lock").open("ab")
    except OSError as error:
        raise UsageFileError(
            f"{path.parent} cannot be written: {error.strerror}. Give the view a data directory "
            f"that it may write."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UsageFileError(
            f"Another view writes {path}. Stop that one, or give this one a data directory of its "
            f"own."
        ) from None
    except OSError as error:
        lock.close()
        raise UsageFileError(
            f"{path} cannot be locked: {error.strerror}. Give the view a data directory on a disk "
            f"of its machine."
        ) from error
    return lock


def _table(path: Path, question: Question, writing: Future[bool] | None) -> IO[bytes]:
    """Ends the reading before anybody is sent anything: a slow caller holds up no writer."""
    if writing is not None:
        writing.exception()
    spool: IO[bytes] = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            for line in lines_of(question, _rows(connection, question)):
                spool.write(line.encode())
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


def _rows(connection: sqlite3.Connection, question: Question) -> Iterable[Row]:
    per_day = question.per == "day"
    named = "owner" if question.by == "owner" else "grp"
    sql = _READ.format(
        days="day, day" if per_day else ":first, :last",
        name=named,
        which="=" if question.by == "owner" else "!=",
        grouped=f"day, {named}, account_on" if per_day else f"{named}, account_on",
        account=ACCOUNT,
        hub=HUB,
    )
    values = {
        "first": question.first_day,
        "last": question.last_day,
        "owner": question.owner,
    }
    return connection.execute(sql, values)
