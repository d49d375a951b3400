"""What is kept here of Helm and of Kubernetes, so that the short tests need neither: what Helm
makes of the chart, and the schemas of the kinds in it.

    make chart                             # after a change of the chart
    python -m tests.charts.keep --check    # writes nothing, and fails where something differs

Helm (75 MB to download, 243 MB installed) and all schemas (23 MB, 108 MB) took 25 s to install.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.charts.chart import CHART, EVERYTHING, SMALLEST, rendered

KUBERNETES = "1.37"
KEPT = Path(__file__).with_name("kept")
SCHEMAS = KEPT / f"kubernetes-{KUBERNETES}.json"
VALUES: dict[str, dict[str, Any]] = {"smallest": SMALLEST, "everything": EVERYTHING}
NO_SCHEMA = frozenset({"PodMonitor"})
"""A kind of the Prometheus operator's."""
_AGAIN = "make chart"


class Outdated(Exception):
    """What is kept is not of the chart as it is."""


def kept(name: str) -> list[dict[str, Any]]:
    """The objects that Helm made of the chart with these values. Raises Outdated where chart or
    values have changed since."""
    text = (KEPT / f"{name}.yaml").read_text()
    if digest(VALUES[name]) not in text.partition("\n")[0]:
        raise Outdated(f"The chart has changed since {name}.yaml was made. Run {_AGAIN}.")
    return list(yaml.safe_load_all(text))


def digest(given: dict[str, Any]) -> str:
    """Of all that Helm reads."""
    read = hashlib.sha256(json.dumps(given, sort_keys=True).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        read.update(f"\0{path.relative_to(CHART)}\0".encode() + path.read_bytes())
    return read.hexdigest()


def schema_of(kind: str) -> dict[str, Any]:
    """Strict: a field that Kubernetes does not know is wrong."""
    found = json.loads(SCHEMAS.read_text())
    return {"$schema": found["$schema"], "$ref": f"#/$defs/{kind}", "$defs": found["$defs"]}


# ---- how it is made --------------------------------------------------------------------------


def made() -> Iterator[tuple[Path, str]]:
    """Each file with its content."""
    kinds: dict[str, str] = {}
    for name, given in VALUES.items():
        objects = rendered(given)
        kinds.update({each["kind"]: each["apiVersion"] for each in objects})
        first = f"# Of the chart {digest(given)} by Helm: {_AGAIN}\n"
        yield KEPT / f"{name}.yaml", first + yaml.safe_dump_all(objects)
    yield SCHEMAS, _schemas({k: v for k, v in kinds.items() if k not in NO_SCHEMA})


def _schemas(kinds: dict[str, str]) -> str:
    """A definition a line, each kind by its name, and what it refers to."""
    import kubernetes_validate

    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    folder /= f"v{KUBERNETES}.0-local-strict"
    every = json.loads((folder / "_definitions.json").read_text())
    found: dict[str, Any] = {}
    missing = []
    for kind, version in sorted(kinds.items()):
        group = re.sub(r"^([^./]*)(\.[^/]*)?/", r"\1-", version)
        found[kind] = _plain(json.loads((folder / f"{kind.lower()}-{group}.json").read_text()))
        missing += list(_references(found[kind]))
    while missing:
        name = missing.pop()
        if name not in found:
            found[name] = _plain(every["$defs"][name])
            missing += list(_references(found[name]))
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    about = json.dumps(f"From kubernetes-validate (Apache-2.0), without descriptions: {_AGAIN}")
    head = f'{{"$schema": {json.dumps(every["$schema"])},\n"$comment": {about},\n"$defs": {{\n'
    return head + ",\n".join(lines) + "\n}}\n"


def _plain(value: Any) -> Any:
    """Without prose, and with references to this file."""
    if isinstance(value, dict):
        return {
            name: f"#/$defs/{each.rpartition('/')[2]}" if name == "$ref" else _plain(each)
            for name, each in value.items()
            if not (name in ("description", "$id", "$schema") and isinstance(each, str))
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def main() -> int:
    differs = False
    for path, text in made():
        if path.exists() and path.read_text() == text:
            continue
        differs = True
        print(f"{path} {'differs' if '--check' in sys.argv else 'is written'}")
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return int(differs and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
