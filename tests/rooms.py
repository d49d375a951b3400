"""What depends on what, between rooms: `make rooms`, and the bars of tests/test_architecture.py.

A room is a folder. In C an arrow is a symbol that one object file needs and another defines, so it
is read from what was built; in Python it is an import. Each table below names rooms from bottom to
top, and an arrow may only go down or stay in its room."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests import core_figures
from tests.support.paths import BUILD, ROOT

PACKAGE = ROOT / "jupyter_gpushare"
HOOK = ROOT / "hook" / "src"
SIM = ROOT / "hook" / "sim"

HOOK_ROOMS = (
    "base",
    "device",
    "memory",
    "swap",
    "gate",
    "allocate",
    "sharing",
    "agent",
    "surface",
)
# What hook/spec/generate.py and hook/sim/generate.py write: wrappers, entry points and tables.
GENERATED_ROOM = "surface"
SIM_ROOMS = (
    "machine",
    "process",
    "memory",
    "modules",
    "streams",
    "executor",
    "capture",
    "allocate",
    "transfer",
    "surface",
    "nvml",
)
# Dotted names are packages in packages; the folder itself is the room of its other modules. "" is
# what Jupyter and IPython load, which lead into the rooms.
PYTHON_ROOMS = (
    "version",
    "core.shares",
    "core",
    "core.configuration",
    "reports",
    "protocol",
    "client",
    "hub",
    "scheduler.base",
    "scheduler.identity",
    "scheduler.devices",
    "scheduler.service",
    "scheduler.hook",
    "scheduler.report",
    "scheduler.http",
    "scheduler",
    "view",
    "kernel",
    "kubelet.api",
    "kubelet",
    "server",
    "simulator.base",
    "simulator.ours",
    "simulator.baselines",
    "simulator",
    "cli",
    "",
)

# Hands its function to a new thread; nothing in base/ calls back.
NO_REGISTRATION = {"own_thread_start"}
# Its function pointers lead out of the library, to libcuda.
OUTSIDE_TYPES = {"driver"}


@dataclass(frozen=True, order=True)
class Arrow:
    """One file needs one name of another."""

    source: str
    name: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.name} ({self.target})"


@dataclass(frozen=True)
class House:
    """Files with the arrows between them, and the order of their rooms."""

    title: str
    rooms: tuple[str, ...]
    room_of: dict[str, str]
    arrows: frozenset[Arrow]

    def arrows_up(self) -> list[Arrow]:
        """Arrows into a room that lies higher than the one they start in."""
        level = {room: i for i, room in enumerate(self.rooms)}
        return sorted(
            a for a in self.arrows if level[self.room_of[a.source]] < level[self.room_of[a.target]]
        )

    def circles(self) -> list[list[str]]:
        """Files each of which needs, over some steps, each other; the largest circle first."""
        needs: dict[str, set[str]] = {file: set() for file in self.room_of}
        for arrow in self.arrows:
            needs[arrow.source].add(arrow.target)
        return [c for c in components(needs) if len(c) > 1]

    def matrix(self) -> str:
        """How many arrows lead from each room (rows) to each other (columns)."""
        counts: dict[tuple[str, str], int] = {}
        for arrow in self.arrows:
            key = self.room_of[arrow.source], self.room_of[arrow.target]
            counts[key] = counts.get(key, 0) + 1
        names = [room or "(package)" for room in self.rooms]
        width = max(map(len, [*names, self.title]))
        lines = [" ".join([self.title.ljust(width), *(n[:9].rjust(9) for n in names)])]
        for row, name in zip(self.rooms, names, strict=True):
            cells = (str(counts.get((row, column)) or ".") for column in self.rooms)
            lines.append(" ".join([name.ljust(width), *(c.rjust(9) for c in cells)]))
        return "\n".join(lines)


def components(needs: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of a graph, the largest first (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in sorted(needs):
        if root in index:
            continue
        path = [(root, iter(sorted(needs[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while path:
            node, rest = path[-1]
            nearest = next((n for n in rest if n not in index or n in stack), None)
            if nearest is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    found.append(sorted(stack[cut:]))
                    del stack[cut:]
            elif nearest in index:
                low[node] = min(low[node], index[nearest])
            else:
                index[nearest] = low[nearest] = len(index)
                stack.append(nearest)
                path.append((nearest, iter(sorted(needs[nearest]))))
    return sorted(found, key=lambda c: (-len(c), c))


# ---- C -----------------------------------------------------------------------------------------


def run_nm(objects: list[Path]) -> Iterable[tuple[Path, str, str]]:
    """(object, kind, symbol) of all global symbols; the kind U is a symbol that is needed."""
    done = subprocess.run(
        ["nm", "-g", "--format=posix", "-A", *map(str, objects)],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        match = re.match(r"(.*\.o): (\S+) (\w)", line)
        if match:
            yield Path(match[1]), match[3], match[2]


def c_house(title: str, objects: Path, rooms: tuple[str, ...]) -> House:
    """The house of these objects; those whose source was deleted since are left out."""
    sources = {"src": HOOK, "sim": SIM}[title.split("/")[1]]

    def name_of(path: Path) -> str | None:
        relative = path.relative_to(objects)
        if relative.parts[0] == "generated":
            return str(relative.with_suffix(".c"))
        for suffix in (".c", ".S"):
            if (sources / relative).with_suffix(suffix).exists():
                return str(relative.with_suffix(suffix))
        return None

    def room_of(name: str) -> str:
        room = name.split("/")[0]
        return GENERATED_ROOM if room == "generated" else room

    defined: dict[str, str] = {}
    needed: list[tuple[str, str]] = []
    files: set[str] = set()
    for path, kind, symbol in run_nm(sorted(objects.rglob("*.o"))):
        name = name_of(path)
        if name is None:
            continue
        files.add(name)
        if kind in "Uw":
            needed.append((name, symbol))
        else:
            defined[symbol] = name
    arrows = {Arrow(f, s, defined[s]) for f, s in needed if s in defined and defined[s] != f}
    return House(title, rooms, {f: room_of(f) for f in files}, frozenset(arrows))


def callback_takers() -> set[str]:
    """Functions of the hook's headers to which a caller hands a function."""
    texts = [strip_comments(p.read_text()) for p in sorted(HOOK.rglob("*.h"))]
    types = {"("}  # of "(*name)(...)": the parameter spells the type out
    for text in texts:
        types.update(re.findall(r"typedef[^;]*\(\*(\w+)\)\s*\(", text))
        for match in re.finditer(r"struct (\w+) \{([^}]*)\}", text):
            if re.search(r"\(\*\w+\)\s*\(", match[2]) and match[1] not in OUTSIDE_TYPES:
                types.add(match[1])
    words = {t for t in types if t != "("}
    takers = set()
    for text in texts:
        for match in re.finditer(r"\b(\w+)\(((?:[^()]|\([^()]*\))*)\);", text):
            given = match[2]
            if "(*" in given or words & set(re.findall(r"\w+", given)):
                takers.add(match[1])
    return takers - NO_REGISTRATION


def registrations(house: House) -> list[Arrow]:
    """Functions that a room hands to a lower one, which calls them: one for each such place."""
    takers = callback_takers()
    found = []
    for arrow in sorted(house.arrows):
        across = house.room_of[arrow.source] != house.room_of[arrow.target]
        if across and arrow.name in takers:
            text = strip_comments((HOOK / arrow.source).read_text())
            found += [arrow] * max(1, len(re.findall(rf"\b{arrow.name}\(", text)))
    return found


def strip_comments(text: str) -> str:
    """C source without comments; each keeps the lines that it had."""
    string_or_comment = r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*'

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.startswith('"') else "\n" * found.count("\n")

    return re.sub(string_or_comment, blank, text, flags=re.S)


def hook_code_lines() -> int:
    """Lines of C in hook/src that are code. clang-format, which `make lint` holds, has laid all of
    them out."""
    texts = (strip_comments(path.read_text()) for path in HOOK.rglob("*.[ch]"))
    return sum(1 for text in texts for line in text.splitlines() if line.strip())


# ---- Python ------------------------------------------------------------------------------------


def python_house() -> House:
    """The package's modules. An import in a function or for types counts like any other."""
    paths = {module_name(p): p for p in PACKAGE.rglob("*.py")}
    files = {name: str(path.relative_to(ROOT)) for name, path in paths.items()}
    arrows = set()
    for path in paths.values():
        source = str(path.relative_to(ROOT))
        for target in imported_modules(path, set(paths)):
            if files[target] != source:
                arrows.add(Arrow(source, target, files[target]))
    room_of = {file: python_room(name) for name, file in files.items()}
    return House("jupyter_gpushare", PYTHON_ROOMS, room_of, frozenset(arrows))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_room(module: str) -> str:
    inside = module.split(".")[1:]
    for length in range(len(inside), 0, -1):
        if ".".join(inside[:length]) in PYTHON_ROOMS:
            return ".".join(inside[:length])
    return ""


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Our modules that this one imports, those among the names that it takes included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(x for x in (base, node.module or "") if x)
            for alias in node.names:
                name = f"{module}.{alias.name}"
                found.add(name if name in modules else module)
    return found & modules


# ---- figures -----------------------------------------------------------------------------------


def houses() -> list[House]:
    return [
        c_house("hook/src", BUILD / "hook" / "objects", HOOK_ROOMS),
        c_house("hook/sim", BUILD / "sim" / "objects", SIM_ROOMS),
        python_house(),
    ]


def files_in_folders() -> dict[str, int]:
    """How many source files lie in each folder of the hook, the simulated GPU and the package."""
    counts: dict[str, int] = {}
    for top, pattern in ((HOOK, "*.[chS]"), (SIM, "*.[chS]"), (PACKAGE, "*.py")):
        for path in top.rglob(pattern):
            folder = str(path.parent.relative_to(ROOT))
            counts[folder] = counts.get(folder, 0) + 1
    return counts


def figures(all_houses: list[House]) -> dict[str, float]:
    return {
        "arrows_up": sum(len(h.arrows_up()) for h in all_houses),
        "largest_circle": max((len(c) for h in all_houses for c in h.circles()), default=1),
        "files_in_a_folder_max": max(files_in_folders().values()),
        "registrations": len(registrations(all_houses[0])),
        "hook_code_lines": hook_code_lines(),
        "import_circles": len(all_houses[2].circles()),
        **core_figures.figures(),
    }


def report(all_houses: list[House]) -> str:
    lines = []
    for house in all_houses:
        lines += [house.matrix(), ""]
        up = house.arrows_up()
        lines += [f"{house.title}: {len(up)} arrows up", *(f"  {a}" for a in up), ""]
        circles = house.circles()
        lines += [f"{house.title}: {len(circles)} circles"]
        lines += [f"  {len(c)}: {' '.join(c)}" for c in circles] + [""]
    given = registrations(all_houses[0])
    lines += [f"{len(given)} registrations", *(f"  {a}" for a in given), ""]
    crowded = sorted(files_in_folders().items(), key=lambda item: -item[1])[:5]
    lines += ["fullest folders: " + ", ".join(f"{folder} {n}" for folder, n in crowded), ""]
    fields = sorted(core_figures.tenant_fields().items(), key=lambda each: -each[1])
    lines += ["fields of one tenant: " + ", ".join(f"{name} {n}" for name, n in fields), ""]
    acting = core_figures.acting_questions()
    lines += [f"{len(acting)} questions that act", *(f"  {each}" for each in acting), ""]
    twice = core_figures.class_names_twice()
    lines += [f"{len(twice)} names of classes twice"]
    lines += [f"  {name}: {', '.join(files)}" for name, files in twice.items()] + [""]
    return "\n".join([*lines, json.dumps(figures(all_houses))])


if __name__ == "__main__":
    sys.stdout.write(report(houses()) + "\n")
