"""`make flaky TIMES=10`: which tests do not answer the same each time.

Runs the suite TIMES times in each company, in a random order of files, and prints what failed and
what took far longer than it does, each with the seed that repeats the order. The last line is JSON.
Ctrl-C ends it: what was run until then is printed."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.flaky.company import COMPANIES, company
from tests.flaky.order import SEED
from tests.flaky.report import Run, as_json, as_text, read_run
from tests.support.paths import ROOT

QUICK = "not full and not gpu and not cluster"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=__doc__)
    parser.add_argument("paths", nargs="*", default=["tests"], help="folders or files (all)")
    parser.add_argument("--times", type=int, default=10, help="runs in each company (%(default)s)")
    parser.add_argument(
        "--company",
        default=",".join(COMPANIES),
        help="alone: nothing else; busy: two loops for each core; disk: a process that fills and "
        "drops memory and writes to the disk (%(default)s)",
    )
    parser.add_argument("--mark", default=QUICK, help="which tests, as for pytest -m (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the first order of files (a random one)")
    parser.add_argument("--workers", default="auto", help="as for pytest -n (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/flaky", help="for the logs")
    return parser.parse_args()


def run_once(options: argparse.Namespace, kind: str, seed: int) -> Run:
    folder: Path = options.out / f"{kind}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-n", options.workers, "--dist", "loadfile"]
    command += ["--no-loadscope-reorder", "-p", "tests.flaky.order", "-m", options.mark]
    command += [f"--junitxml={report}", "-o", "junit_duration_report=call", *options.paths]
    began_s = time.monotonic()
    with company(kind, options.out), (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**os.environ, SEED: str(seed)}, cwd=ROOT, stdout=log, stderr=log
        )
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.wait()  # it was interrupted, too, and cleans up
            raise
    wall_s = time.monotonic() - began_s
    return read_run(report, company=kind, seed=seed, wall_s=wall_s, status=status)


def main() -> int:
    options = arguments()
    kinds = options.company.split(",")
    if unknown := set(kinds) - set(COMPANIES):
        print(f"There is no company {', '.join(sorted(unknown))}.", end=" ", file=sys.stderr)
        print(f"Name some of {', '.join(COMPANIES)}.", file=sys.stderr)
        return 2
    first = options.seed if options.seed is not None else random.SystemRandom().getrandbits(24)
    options.out.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    try:
        for number in range(options.times):
            for kind in kinds:
                run = run_once(options, kind, first + number)
                runs.append(run)
                said = "green" if run.is_green else f"FAILED: {', '.join(run.failed) or 'the run'}"
                print(f"{kind}, seed {run.seed}: {run.wall_s:.0f} s, {said}", flush=True)
                (options.out / "report.json").write_text(json.dumps(as_json(runs), indent=1))
    except KeyboardInterrupt:
        print("Interrupted.")
    if not runs:
        return 1
    print(f"\n{as_text(runs)}\n")
    print(json.dumps(as_json(runs)))
    return 0 if all(run.is_green for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
