"""How much a reader of the core has to hold: figures that `make rooms` prints and
tests/test_architecture.py bounds. All of them are read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "jupyter_gpushare"
CORE = PACKAGE / "core"

PER_TENANT = {
    "Client",
    "Context",
    "Copies",
    "Counters",
    "Hold",
    "Lack",
    "MemoryWait",
    "Own",
    "Recent",
    "Share",
    "Shortage",
    "SpaceRequest",
    "Tenant",
    "Turn",
    "_Told",
}
"""Mutable records that exist once per tenant, per tenant and device, or per client."""
OTHERS = {
    "Account",
    "Accounts",
    "Alarm",
    "Attention",
    "Changes",
    "Contexts",
    "Device",
    "DeviceAccounts",
    "DeviceMemory",
    "Grace",
    "Largest",
    "Line",
    "Lines",
    "GangLook",
    "News",
    "Owner",
    "RecentUses",
    "Span",
    "State",
    "Stirred",
    "SwapBudget",
    "Totals",
    "Usage",
    "Wish",
    "_Before",
}
"""All other ones: of owners, devices, or the node, or for one look."""
QUESTION = ("is_", "has_", "may_", "can_", "needs_", "wants_")
"""A function whose name begins so changes nothing."""
_MUTATORS = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "setdefault",
        "sort",
        "update",
    ]
)


def core_files() -> list[Path]:
    """Those with something in them."""
    return sorted(path for path in CORE.rglob("*.py") if len(path.read_text().splitlines()) > 1)


def core_lines() -> int:
    return sum(len(path.read_text().splitlines()) for path in CORE.rglob("*.py"))


def classes_of(path: Path) -> list[ast.ClassDef]:
    return [
        each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.ClassDef)
    ]


def class_names_twice() -> dict[str, list[str]]:
    """Names of classes that two modules of the package define, with those modules. A message may be
    called as its event or command is, and handlers of HTTP as those of another server are."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for each in classes_of(path):
            if not each.name.endswith("Handler"):
                found.setdefault(each.name, []).append(str(path.relative_to(PACKAGE)))
    return {name: files for name, files in sorted(found.items()) if not _may_be_twice(files)}


def _may_be_twice(files: list[str]) -> bool:
    """A message of the wire, and the event, command or setting of the core that it becomes."""
    of_wire = [each == "protocol/messages.py" for each in files]
    of_core = [each.startswith("core/") for each in files]
    return len(files) == 1 or (len(files) == 2 and any(of_wire) and any(of_core))


def mutable_records() -> set[str]:
    """Names of the dataclasses of the core that are not frozen."""
    found = set()
    for path in core_files():
        for each in classes_of(path):
            for sign in each.decorator_list:
                text = ast.unparse(sign)
                if text.startswith("dataclass") and "frozen=True" not in text:
                    found.add(each.name)
    return found


def tenant_fields() -> dict[str, int]:
    """How many fields each record has that exists once per tenant, per tenant and device, or per
    client."""
    return {
        each.name: len([line for line in each.body if isinstance(line, ast.AnnAssign)])
        for path in core_files()
        for each in classes_of(path)
        if each.name in PER_TENANT
    }


# ---- questions that act ------------------------------------------------------------------------


@dataclass
class Function:
    """What one function or method of the core does, as far as its source shows."""

    where: str
    name: str
    """With a point before it, if it is a method."""
    writes: list[int] = field(default_factory=list)
    """Lines that change something which is not the function's own."""
    calls: set[str] = field(default_factory=set)
    """By names as above."""


def functions_of_core() -> list[Function]:
    return [
        function
        for path in core_files()
        for function in functions_in(path.read_text(), str(path.relative_to(CORE)))
    ]


def functions_in(text: str, where: str) -> list[Function]:
    tree, found = ast.parse(text), []
    classes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    methods = {id(each) for kind in classes for each in kind.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            sign = "." if id(node) in methods else ""
            found.append(_read(node, where, f"{sign}{node.name}"))
    return found


def _read(node: ast.FunctionDef, where: str, name: str) -> Function:
    function = Function(where, name)
    own = _own_names(node)
    for each in ast.walk(node):
        for target in _targets(each):
            if isinstance(target, ast.Attribute | ast.Subscript) and _root(target) not in own:
                function.writes.append(target.lineno)
        if isinstance(each, ast.Call):
            called = each.func
            if isinstance(called, ast.Name):
                function.calls.add(called.id)
            elif isinstance(called, ast.Attribute):
                if called.attr not in _MUTATORS:
                    function.calls.add(f".{called.attr}")
                elif _root(called.value) not in own:
                    function.writes.append(called.lineno)
    return function


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign() | ast.Delete():
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else (target,)
        case ast.AugAssign() | ast.AnnAssign():
            yield node.target


def _root(node: ast.expr) -> str:
    """The name that an expression begins with; empty for what is made on the spot."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _own_names(node: ast.FunctionDef) -> set[str]:
    """Of things that the function has made itself."""
    made = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp)
    own = {""}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign | ast.AnnAssign):
            value = each.value
            is_made = isinstance(value, made) or (
                isinstance(value, ast.Call) and _root_of_call(value).lstrip("_")[:1].isupper()
            )
            if is_made or (isinstance(value, ast.Call) and _root_of_call(value) in _MAKERS):
                own |= {target.id for target in _targets(each) if isinstance(target, ast.Name)}
    return own


_MAKERS = {"set", "dict", "list", "sorted", "frozenset", "deque", "defaultdict"}
_BEGINS = {".__init__", ".__post_init__"}


def _root_of_call(call: ast.Call) -> str:
    function = call.func
    return _root(function.value if isinstance(function, ast.Subscript) else function)


def acting_questions(functions: list[Function] | None = None) -> list[str]:
    """Functions with the name of a question that change something, themselves or by what they call.
    A call by a name that several functions have is a call of each."""
    functions = functions_of_core() if functions is None else functions
    acts = {each.name for each in functions if each.writes and each.name not in _BEGINS}
    while True:
        more = {each.name for each in functions if each.calls & acts} - acts - _BEGINS
        if not more:
            break
        acts |= more
    return sorted(
        f"{each.where}: {each.name}"
        for each in functions
        if each.name.lstrip("._").startswith(QUESTION) and (each.writes or each.calls & acts)
    )


def figures() -> dict[str, float]:
    fields = tenant_fields()
    return {
        "core_lines": core_lines(),
        "core_files": len(core_files()),
        "tenant_fields": sum(fields.values()),
        "tenant_fields_in_one_record": max(fields.values()),
        "acting_questions": len(acting_questions()),
        "class_names_twice": len(class_names_twice()),
    }
