"""What frameworks bring with them, beside a rival: `python -m tests.gpu.suites numba cupy=DIR`.

Runs each suite three times: without the hook, with it alone, and with it on a device that is cut
small, beside a rival which holds most of that and works all the time. What passes without the hook
has to pass with it. `numba` are the CUDA tests in Numba's own package; `cupy=DIR` is a folder of
CuPy's tests, `samples=DIR` one of built CUDA samples. The last line is JSON. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gpu.conftest import DEVICES
from tests.gpu.suites.outcomes import (
    ALONE,
    BARE,
    BESIDE,
    COMPANIES,
    FAILED,
    PASSED,
    SKIPPED,
    Outcomes,
    as_json,
    as_text,
    read,
)
from tests.gpu.suites.plugin import CHOSEN, RECORD, SHARD
from tests.gpu.support import command
from tests.support.paths import ROOT
from tests.support.tenants import tenants

WAIVED = 2
"""A CUDA sample ends so where the device lacks what it shows."""
SAMPLE_S_MAX = 120
CRASHES_MAX = 200
Environment = Callable[[str], Mapping[str, str]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.suites", description=__doc__)
    parser.add_argument("suites", nargs="+", help="numba, cupy=DIR, samples=DIR")
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="for the run without the hook, and three times as many for each of the others: those "
        "run what passed without it (%(default)s)",
    )
    parser.add_argument("--workers", type=int, default=4, help="processes (%(default)s)")
    parser.add_argument(
        "--companies",
        nargs="+",
        choices=COMPANIES,
        default=COMPANIES,
        help="which of the three runs; bare is always one of them (all)",
    )
    parser.add_argument("--select", default="", help="as for pytest -k")
    parser.add_argument("--quantum", type=float, default=0.5, help="seconds (%(default)s)")
    parser.add_argument("--device-gib", type=int, default=12, help="of a cut device (%(default)s)")
    parser.add_argument("--rival-gib", type=int, default=9, help="held by the rival (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the logs (a temporary one)")
    return parser.parse_args()


def folder_of(suite: str, path: str, out: Path) -> Path:
    """Where its tests lie. Raises SystemExit with what is missing. Numba's are found by a link of
    another name: pytest would put the folder above them on the path, with a `cuda` in it."""
    if suite == "numba":
        found = importlib.util.find_spec("numba.cuda.tests")
        if found is None or not found.submodule_search_locations:
            sys.exit("Numba's CUDA tests are not installed. Install them: pip install numba-cuda")
        link = out / "numba" / "numba_cuda_tests"
        link.symlink_to(found.submodule_search_locations[0])
        return link
    if suite not in ("cupy", "samples") or not Path(path).is_dir():
        sys.exit(f"There is no suite {suite}={path}. Name numba, cupy=DIR or samples=DIR.")
    return Path(path)


def run_tests(
    folder: Path, select: str, environment: Mapping[str, str], record: Path, ends_s: float
) -> Outcomes:
    """One shard, again after each test that ends its process."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.gpu.suites.plugin"]
    argv += ["-p", "no:cacheprovider", "--tb=short", "-W", "ignore"]
    argv += ["--continue-on-collection-errors"]
    argv += [*(["-k", select] if select else []), str(folder)]
    outcomes = Outcomes()
    with record.with_suffix(".log").open("w") as log:
        for _ in range(CRASHES_MAX):
            process = subprocess.Popen(
                argv, env=environment, cwd=folder.parent, stdout=log, stderr=log
            )
            try:
                status = process.wait(max(0.1, ends_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return read(record.open()) if record.exists() else outcomes
            outcomes = read(record.open()) if record.exists() else outcomes
            if status >= 0:
                break
            outcomes.process_died()
            died = [t for t, its in outcomes.by_test.items() if its not in (PASSED, FAILED)]
            with record.open("a") as written:
                written.writelines(f"{outcomes.by_test[test]} {test}\n" for test in died)
    return outcomes


def run_sample(sample: Path, environment: Environment, log: Path) -> int:
    """Its exit status; 1 where it does not end."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sample],
            env=environment(sample.name),
            cwd=sample.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            return process.wait(SAMPLE_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return 1


def run_samples(
    samples: list[Path], environment: Environment, workers: int, out: Path, ends_s: float
) -> Outcomes:
    """So many at once, each in the folder in which it lies; those that come too late not at all."""

    def status_of(sample: Path) -> int | None:
        if time.monotonic() > ends_s:
            return None
        return run_sample(sample, environment, out / f"{sample.name}.log")

    outcomes = Outcomes()
    with ThreadPoolExecutor(workers) as pool:
        for sample, status in zip(samples, pool.map(status_of, samples), strict=True):
            if status is None:
                continue
            outcomes.note(sample.name, {0: PASSED, WAIVED: SKIPPED}.get(status, FAILED))
            if status < 0:
                outcomes.note(sample.name, "died")
    return outcomes


def run_suite(
    options: argparse.Namespace, suite: str, folder: Path, environment: Environment, out: Path
) -> Outcomes:
    """`out` has what a run without the hook passed, if there was one: only that is run then."""
    chosen = out.parent / "chosen"
    ends_s = time.monotonic() + options.seconds * (3 if chosen.exists() else 1)
    if suite == "samples":
        files = (path for path in sorted(folder.iterdir()) if path.is_file())
        samples = [path for path in files if os.access(path, os.X_OK)]
        if chosen.exists():
            names = set(chosen.read_text().splitlines())
            samples = [path for path in samples if path.name in names]
        return run_samples(samples, environment, options.workers, out, ends_s)

    def shard(number: int) -> Outcomes:
        record = out / f"shard-{number}"
        own = {RECORD: str(record), SHARD: f"{number}/{options.workers}"}
        if chosen.exists():
            own[CHOSEN] = str(chosen)
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**environment(f"{suite}-{number}"), **own, "PYTHONPATH": path}
        return run_tests(folder, options.select, env, record, ends_s)

    together = Outcomes()
    with ThreadPoolExecutor(options.workers) as pool:
        for its in pool.map(shard, range(options.workers)):
            together.by_test |= its.by_test
    return together


@contextlib.contextmanager
def company(options: argparse.Namespace, kind: str, out: Path) -> Iterator[Environment]:
    """The environments of the suite's processes."""
    if kind == BARE:
        yield lambda name: os.environ
        return
    settings: dict[str, object] = {"memory_mode": "swap"}
    if kind == BESIDE:
        settings["device_bytes_max"] = options.device_gib << 30
    with tenants(
        out / "run", os.environ, quantum_s=options.quantum, settings=settings
    ) as scheduler:
        if kind == ALONE:
            yield lambda name: scheduler.env(name, os.environ)
            return
        rival = subprocess.Popen(
            command("rival_memory", options.rival_gib << 10, options.seconds * 4),
            env=scheduler.env("rival", os.environ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            if not rival.stdout or rival.stdout.readline() != "ready\n":
                sys.exit("The rival did not start. Its error stands above.")
            yield lambda name: scheduler.env(name, os.environ)
            if rival.poll() is not None:
                print("the rival died", file=sys.stderr)
        finally:
            rival.terminate()
            rival.wait()


def main() -> int:
    options = arguments()
    if DEVICES == 0:
        sys.exit("This machine has no GPU. Run the suites where there is one.")
    named = {suite: path for suite, _, path in (each.partition("=") for each in options.suites)}
    runs: dict[str, dict[str, Outcomes]] = {suite: {} for suite in named}
    with contextlib.ExitStack() as stack:
        base = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base = base.absolute()
        for suite in named:
            shutil.rmtree(base / suite, ignore_errors=True)  # of an earlier run
            (base / suite).mkdir(parents=True)
        folders = {suite: folder_of(suite, path, base) for suite, path in named.items()}
        for suite, folder in folders.items():
            for kind in (k for k in COMPANIES if k == BARE or k in options.companies):
                out = base / suite / kind
                out.mkdir(parents=True, exist_ok=True)
                began_s = time.monotonic()
                with company(options, kind, out) as environment:
                    runs[suite][kind] = run_suite(options, suite, folder, environment, out)
                if kind == BARE:
                    if not runs[suite][kind].named(PASSED):
                        sys.exit(f"No test of {suite} passed without the hook. Look at {out}.")
                    passed = sorted(runs[suite][kind].named(PASSED))
                    (out.parent / "chosen").write_text("".join(f"{test}\n" for test in passed))
                print(f"{suite} {kind}: {time.monotonic() - began_s:.0f} s", flush=True)
    print(f"\n{as_text(runs)}\n")
    print(json.dumps(as_json(runs)))
    return 1 if any(its["lost"] for of in as_json(runs).values() for its in of.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
