"""`jupyter gpushare simulate`: what would happen with other devices, settings or policies."""

from __future__ import annotations

import argparse
from pathlib import Path

from jupyter_gpushare.simulator.presets import PRESETS
from jupyter_gpushare.simulator.words import WORDS

_DESCRIPTION = """Run a workload in virtual time: a trace, the scheduler's own journal, or a preset.
The policy `ours` is the scheduler of this package itself; the others are models of other ways to
share a GPU. docs/scheduling.md explains the figures and has the format of a trace."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "simulate",
        help="show in virtual time what another policy, setting or number of devices would do",
        description=_DESCRIPTION,
        epilog=_explained(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a trace, or journals of the scheduler in the order of their times",
    )
    parser.add_argument("--preset", metavar="NAME", help="a workload that is drawn from a seed")
    parser.add_argument("--seed", type=int, default=1, help="of the preset (default: 1)")
    parser.add_argument(
        "--policy",
        default="ours",
        metavar="NAME[,NAME…]",
        help="what decides (default: ours); `all`: each of them",
    )
    parser.add_argument(
        "--devices", type=int, metavar="N", help="how many (default: as the workload says)"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the scheduler, such as quantum_s=1s; for the policy `ours`",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw an SVG or PNG file")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(perform=perform)


def perform(arguments: argparse.Namespace) -> int:
    # Imported here: the other verbs need nothing of the simulator.
    from .simulation import perform as simulate

    return simulate(arguments)


def _explained() -> str:
    width = max(map(len, [*PRESETS, *WORDS]))
    lines = ["presets:"]
    lines += [f"  {name.ljust(width)}  {preset.words}" for name, preset in PRESETS.items()]
    lines += ["", "policies:"]
    lines += [f"  {name.ljust(width)}  {words}" for name, words in WORDS.items()]
    return "\n".join(lines)
