"""Dependencies point one way; these tests hold the cuts that ARCHITECTURE.md draws."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests import core_figures, rooms
from tests.support.paths import hook_source

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "jupyter_gpushare"
HOOK = ROOT / "hook" / "src"

PURE_STDLIB = {
    "bisect",
    "difflib",
    "re",
    "__future__",
    "collections",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "random",
    "operator",
    "pickle",
    "traceback",
    "typing",
}
PURE_C_FILES = ["turn_state.c", "idle_rule.c", "window_pace.c", "codec.c", "ipc_handle.c"]
PURE_C_HEADERS_FORBIDDEN = re.compile(
    r'#include [<"](cuda|nvml|sys/socket|sys/un|pthread|unistd|time|stdio)[\w/]*\.h[>"]'
)


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Absolute dotted names that a module imports, relative ones resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(x for x in (base, node.module or "") if x)
            names.add(module)
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def ours(names: set[str]) -> set[str]:
    """The rooms of our package that these names lie in."""
    return {n.split(".")[1] for n in names if n.startswith("jupyter_gpushare.") and "." in n}


@pytest.mark.promise(
    "scheduler-97",
    "The core is pure, and keeps its invariants under Hypothesis's stateful testing",
)
@pytest.mark.promise("demo-15", "Each room of the code uses only the rooms that it may use")
@pytest.mark.parametrize("path", modules(PACKAGE / "core"), ids=lambda p: p.name)
def test_core_is_pure(path: Path) -> None:
    """The core imports the pure part of the standard library and itself, nothing else."""
    names = imported(path)
    outside = {n.split(".")[0] for n in names} - PURE_STDLIB - {"jupyter_gpushare"}
    assert not outside
    assert ours(names) <= {"core"}


@pytest.mark.promise("demo-15")
def test_the_plugin_decides_apart_from_what_it_does() -> None:
    """What runs beside a kubelet decides without a clock, a socket or gRPC."""
    outside = {"time", "asyncio", "socket", "os", "grpc", "logging"}
    for name in ("registration.py", "seats.py", "pods.py"):
        assert not imported(PACKAGE / "kubelet" / name) & outside, name


@pytest.mark.promise("demo-15")
def test_the_view_decides_apart_from_what_it_does() -> None:
    """What is believed of nodes, and who may see what of it: without a clock or a socket."""
    outside = {"time", "datetime", "asyncio", "socket", "os", "logging", "tornado", "sqlite3"}
    for name in ("advice", "caller", "cut", "fleet", "glance", "pace", "query", "usage"):
        found = imported(PACKAGE / "view" / f"{name}.py")
        assert not {each.split(".")[0] for each in found} & outside, name
        assert ours(found) <= {"reports", "view"}, name


@pytest.mark.promise("demo-15")
def test_one_file_of_the_view_knows_the_hubs_package() -> None:
    """Nodes and tests without JupyterHub use all the others."""
    knowing = [
        path.name
        for path in modules(PACKAGE / "view")
        if any(name.split(".")[0] == "jupyterhub" for name in imported(path))
    ]
    assert knowing == ["oauth.py"]


@pytest.mark.promise("demo-15")
def test_what_is_reported_is_decided_apart_from_sending_it() -> None:
    """What a report says is known without a clock, a socket or the scheduler's process."""
    for name in ("format", "delta", "problems", "waits"):
        path = PACKAGE / "reports" / f"{name}.py"
        assert not imported(path) & {"time", "datetime", "asyncio", "socket", "os", "random"}, path
        assert ours(imported(path)) <= {"core", "reports"}, path


@pytest.mark.promise("scheduler-97")
def test_core_reads_no_clock() -> None:
    """Time is an argument of the core: nobody in it can read one. Draws come from a seed."""
    for path in modules(PACKAGE / "core"):
        found = imported(path)
        assert not found & {"time", "datetime", "asyncio"}, path
        draws = {name for name in found if name.split(".")[0] == "random"}
        assert not draws or (
            draws == {"random", "random.Random"} and "Random(0)" in path.read_text()
        )


@pytest.mark.promise("simulator-6")
def test_the_simulator_has_only_virtual_time() -> None:
    """It reads no clock, and of the package it uses the core alone: no process, no socket."""
    for path in modules(PACKAGE / "simulator"):
        assert not imported(path) & {"time", "datetime", "asyncio", "socket", "subprocess"}, path
        assert ours(imported(path)) <= {"core", "simulator"}, path


@pytest.mark.promise("demo-15")
@pytest.mark.parametrize("path", modules(PACKAGE / "protocol"), ids=lambda p: p.name)
def test_protocol_does_not_know_the_core(path: Path) -> None:
    """The protocol package imports itself alone from ours."""
    assert ours(imported(path)) <= {"protocol", "__version__"}


@pytest.mark.promise("demo-15")
def test_one_module_knows_core_and_protocol() -> None:
    """Only scheduler/hook/translate.py imports messages of the protocol and events of the core."""
    both = [
        path.name
        for path in modules(PACKAGE)
        if {"jupyter_gpushare.protocol.messages", "jupyter_gpushare.protocol"} & imported(path)
        and any(n.startswith("jupyter_gpushare.core.events") for n in imported(path))
    ]
    assert both == ["translate.py"]


@pytest.mark.promise("demo-15")
def test_one_module_drives_the_core() -> None:
    """driver.py alone calls Scheduler.handle or Scheduler.steps."""
    callers = [
        path.name
        for path in modules(PACKAGE / "scheduler")
        if re.search(r"scheduler\.(handle|steps)\(", path.read_text())
    ]
    assert callers == ["driver.py"]


@pytest.mark.promise("demo-15")
@pytest.mark.parametrize("room", ["kernel", "cli", "client", "kubelet", "server", "hub"])
def test_clients_use_the_api_alone(room: str) -> None:
    """Kernel side and command line speak to the scheduler through its API, not its insides.

    `cli/scheduler.py` starts the process and may import its application."""
    for path in modules(PACKAGE / room):
        if path.name == "scheduler.py" and room == "cli":
            continue
        used = ours(imported(path))
        assert "scheduler" not in used or used_only_runtime_dir(path), path


def used_only_runtime_dir(path: Path) -> bool:
    """Where the sockets lie is public knowledge."""
    scheduler = {n for n in imported(path) if n.startswith("jupyter_gpushare.scheduler")}
    return all(n.startswith("jupyter_gpushare.scheduler.runtime_dir") for n in scheduler)


@pytest.mark.promise("demo-15")
def test_shipping_code_never_imports_tests() -> None:
    """No module of the package imports from tests."""
    for path in modules(PACKAGE):
        assert not any(n.split(".")[0] == "tests" for n in imported(path)), path


@pytest.mark.promise("demo-15")
@pytest.mark.parametrize("name", PURE_C_FILES)
def test_pure_c_files_include_no_outside_world(name: str) -> None:
    """The decisions of the hook include no CUDA, socket, clock or pthread header."""
    for path in (hook_source(name), hook_source(name.replace(".c", ".h"))):
        assert not PURE_C_HEADERS_FORBIDDEN.search(path.read_text()), path


@pytest.mark.promise("demo-15")
def test_only_symbols_c_resolves_symbols() -> None:
    """In the hook, dlsym, dlvsym and dlopen are called in symbols.c alone."""
    callers = {
        path.name
        for path in HOOK.rglob("*.c")
        if re.search(r"\b(dlsym|dlvsym|dlopen)\(", strip_comments(path.read_text()))
    }
    assert callers <= {"symbols.c", "interpose.c"}


def test_only_options_c_reads_the_environment() -> None:
    """Configuration is a table read once."""
    callers = {
        path.name
        for path in HOOK.rglob("*.c")
        if re.search(r"\b(secure_)?getenv\(", strip_comments(path.read_text()))
    }
    assert callers <= {"options.c"}


@pytest.mark.promise("hook-53", "The hook never ends its host, and needs the C library alone")
def test_the_hook_never_ends_its_host() -> None:
    """No exit, abort or assert in the hook: the user's kernel outlives our bugs."""
    for path in HOOK.rglob("*.c"):
        text = strip_comments(path.read_text())
        assert not re.search(r"(?<![\w.>])(exit|_exit|abort|assert|quick_exit)\(", text), path


# What `make rooms` may print.
AT_MOST = {
    "arrows_up": 0,
    "largest_circle": 4,
    "files_in_a_folder_max": 30,
    "registrations": 13,
    "hook_code_lines": 17_395,  # decisions 0017 to 0024, 0033, 0035 and 0036
    "core_lines": 12_793,
    "core_files": 46,
    "tenant_fields": 186,
    "tenant_fields_in_one_record": 55,
    "acting_questions": 0,
    "import_circles": 0,
    "class_names_twice": 0,
}


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    """What `make rooms` prints last."""
    return rooms.figures(rooms.houses())


@pytest.mark.parametrize("name", AT_MOST)
def test_rooms_are_in_order(figures: dict[str, float], name: str) -> None:
    """Arrows between rooms run one way, circles and folders are small: `make rooms` names which."""
    assert figures[name] <= AT_MOST[name], "`make rooms` shows what it is"


def test_rooms_of_the_simulated_gpu() -> None:
    """Calls and includes lead down, and no more than three files call each other in a circle."""
    (house,) = (h for h in rooms.houses() if h.title == "hook/sim")
    assert house.arrows_up() == []
    assert len(house.circles()[0]) <= 3
    level = {room: i for i, room in enumerate(house.rooms)}
    for path in rooms.SIM.glob("*/*.[ch]"):
        included = re.findall(r'#include "(\w+)/', path.read_text())
        assert all(level[room] <= level[path.parent.name] for room in included), path


def test_circles_are_found() -> None:
    """The check itself finds a circle, and leaves out what only leads to it."""
    needs = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"b", "e"}, "e": set()}
    assert rooms.components(needs)[0] == ["b", "c", "d"]


def test_records_of_the_core_are_known() -> None:
    """Each one that changes is counted as one of a tenant, or is known to be none."""
    assert core_figures.mutable_records() == core_figures.PER_TENANT | core_figures.OTHERS


ACTS = """
class Share:
    def note(self):
        self.noted = True

def look(share):
    found = {}
    found[1] = share
    return found

def is_seen(share):
    return look(share)

def is_noted(share):
    share.note()

def may_go(share):
    return is_noted(share)
"""


def test_a_question_that_acts_is_found() -> None:
    """The check itself finds one that calls what acts, and leaves out what fills its own table."""
    functions = core_figures.functions_in(ACTS, "a.py")
    assert core_figures.acting_questions(functions) == ["a.py: is_noted", "a.py: may_go"]


def test_an_arrow_up_is_found() -> None:
    """The check itself tells an arrow that leads up from those that lead down or stay."""
    up = rooms.Arrow("base/a.c", "f", "gate/b.c")
    others = {rooms.Arrow("gate/b.c", "g", "base/a.c"), rooms.Arrow("gate/b.c", "h", "gate/c.c")}
    room_of = {"base/a.c": "base", "gate/b.c": "gate", "gate/c.c": "gate"}
    house = rooms.House("house", ("base", "gate"), room_of, frozenset({up} | others))
    assert house.arrows_up() == [up]


def strip_comments(text: str) -> str:
    """C source without comments and string literals."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"//.*", "", text)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def test_python_is_new_enough() -> None:
    """The package promises Python 3.10."""
    assert sys.version_info >= (3, 10)
