"""Nodes of a cluster on one machine: each process gets a view of its own of a few paths, by a mount
namespace. So each node has the same paths and other files there, as nodes have, and accounts and
names of hosts exist that the machine itself does not know. Nothing outside the folder is changed.
For root."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

FIRST_UID = 61_000


@dataclass(frozen=True)
class Account:
    """A user of the cluster."""

    name: str
    uid: int
    home: Path


class Views:
    """`HERE` is a folder that each node sees as its own; the test sees it as `of(node)`."""

    def __init__(self, folder: Path, nodes: Sequence[str], users: Sequence[str]) -> None:
        folder.chmod(0o711)
        self.folder = folder
        self.here = folder / "node"
        self.here.mkdir()
        for node in nodes:
            self.of(node).mkdir(parents=True)
        self.accounts = {name: self._account(n, name) for n, name in enumerate(users)}
        self._write_accounts()
        hosts = "".join(f"127.0.0.1 {node}\n" for node in nodes)
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + hosts)
        self._script = folder / "enter.sh"
        self._script.write_text("\n".join(["set -e", "node=$1", "shift", *self._mounts(), ""]))

    def of(self, node: str) -> Path:
        """The node's own folder, as the test sees it."""
        return self.folder / "nodes" / node

    def command(self, node: str, command: Sequence[str | Path]) -> list[str]:
        """The command, for a node; for the machine of the hub and slurmctld if `node` is empty."""
        private = ["unshare", "--mount", "--propagation=private"]
        return [*private, "sh", str(self._script), node, *map(str, command)]

    def _account(self, number: int, name: str) -> Account:
        account = Account(name, FIRST_UID + number, self.folder / "homes" / name)
        account.home.mkdir(parents=True)
        os.chown(account.home, account.uid, account.uid)
        return account

    def _write_accounts(self) -> None:
        for file, line in (
            ("passwd", "{0.name}:x:{0.uid}:{0.uid}::{0.home}:/bin/bash"),
            ("group", "{0.name}:x:{0.uid}:"),
            ("shadow", "{0.name}:*:19000:0:99999:7:::"),
        ):
            before = Path("/etc", file)
            lines = [line.format(each) for each in self.accounts.values()]
            copy = self.folder / file
            copy.write_text(before.read_text() + "\n".join(lines) + "\n")
            copy.chmod(stat.S_IMODE(before.stat().st_mode))

    def _mounts(self) -> list[str]:
        """Lines of the script that each process goes through."""
        accounts = [
            f"mount --bind {self.folder / file} /etc/{file}"
            for file in ("passwd", "group", "shadow", "hosts")
        ]
        node = f'[ -z "$node" ] || mount --bind "{self.folder}/nodes/$node" {self.here}'
        return [*accounts, *self._open_ways(), node, 'exec "$@"']

    def _open_ways(self) -> list[str]:
        """Users must come to this Python and this checkout, and to nothing else that lies in a
        folder which is closed to them."""
        lines, shown = [], self.folder / "shown"
        ways: dict[Path, list[Path]] = {}
        for path in dict.fromkeys(Path(p) for p in (sys.base_prefix, sys.prefix, ROOT)):
            if closed := closed_parent(path):
                ways.setdefault(closed, []).append(path)
        for number, (closed, paths) in enumerate(ways.items()):
            places = [shown / f"{number}-{n}" for n in range(len(paths))]
            for path, place in zip(paths, places, strict=True):
                place.mkdir(parents=True)
                lines.append(shlex.join(["mount", "--bind", str(path), str(place)]))
            lines.append(shlex.join(["mount", "-t", "tmpfs", "-o", "mode=755", "x", str(closed)]))
            for path, place in zip(paths, places, strict=True):
                lines.append(shlex.join(["mkdir", "-p", str(path)]))
                lines.append(shlex.join(["mount", "--bind", str(place), str(path)]))
        return lines


def closed_parent(path: Path) -> Path | None:
    """The first folder on the way to `path` that others may not pass through."""
    ways = [each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH]
    return ways[0] if ways else None
