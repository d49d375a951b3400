"""Asks a driver what its documentation leaves open: `python -m tests.driver.questions`.

One run answers all of tests/driver/asked/. Each question has a process of its own, so that a crash
or a hang is an answer too; after either the run goes on only if the device is still well. The run
ends in time, whatever happens: what was not asked by then says so. `--json FILE` keeps the
answers, `--against FILE` shows where they differ from kept ones.
GPUSHARE_DRIVER names the driver, as in the conformance suite."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import os
import select
import signal
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork takes no threads along

from cuda.bindings import driver as cuda

from tests.driver.asked.question import QUESTIONS, Question, word
from tests.driver.harness import Gpu, driver_kind, driver_under_test

SUBJECTS = (
    "mapped",
    "pooled",
    "graphs",
    "shared",
    "managed",
    "gone",
    "ends",
    "captures",
    "stale",
)  # the first ones matter most
WELL_S_MAX = 30.0  # a context on a busy device takes seconds
ANSWER_MAX = 2000  # a pipe takes so much at once
UNANSWERED = (
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
END = b"\0"  # processes that the question has started may keep the pipe open


def answer_in_child(question: Question) -> str:
    """What the process of a question does."""
    try:
        with driver_under_test():
            return str(question.ask(*(Gpu() for _ in inspect.signature(question.ask).parameters)))
    except UNANSWERED as error:
        return f"raised {type(error).__name__}: {error}"


class Asking:
    """A question under way."""

    def __init__(self, question: Question, timeout_s: float) -> None:
        self.question = question
        self.ends_s = time.monotonic() + timeout_s
        self.reader, writer = os.pipe()
        self._said = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)  # what it starts ends with it
            os.close(self.reader)
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            os.write(writer, answer_in_child(question)[:ANSWER_MAX].encode() + END)
            os._exit(0)
        os.close(writer)

    def hear(self) -> bool:
        """Reads on; true when nothing more will come."""
        part = os.read(self.reader, 1 << 16)
        self._said += part
        return not part or part.endswith(END)

    @property
    def answered(self) -> bool:
        return bool(self._said)

    def end(self, late: bool) -> str:
        """The answer, after its processes have ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL if late else signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.reader)
        if self._said:
            return self._said.removesuffix(END).decode(errors="replace")
        if late:
            return "no answer in time"
        return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


def device_is_well(timeout_s: float) -> bool:
    """Whether a new process still gets an answer of the device."""

    def work(gpu: Gpu) -> str:
        gpu.launch("spin", 1)
        return word(cuda.cuCtxSynchronize())

    asking = Asking(Question("well", "Does the device work?", work, alone=False), timeout_s)
    while (left_s := asking.ends_s - time.monotonic()) > 0:
        if select.select([asking.reader], [], [], left_s)[0] and asking.hear():
            return asking.end(late=False) == "SUCCESS"
    asking.end(late=True)
    return False


def ask_all(
    questions: list[Question], workers: int, each_s: float, ends_s: float
) -> dict[str, str]:
    """The answers by name, with so many questions at a time."""
    waiting, answers = list(questions), {}
    under_way: list[Asking] = []
    while (waiting and time.monotonic() < ends_s) or under_way:
        while waiting and len(under_way) < workers and time.monotonic() < ends_s:
            left_s = ends_s - time.monotonic()
            under_way.append(Asking(waiting.pop(0), min(each_s, left_s)))
        soonest_s = min(asking.ends_s for asking in under_way) - time.monotonic()
        ready, _, _ = select.select([a.reader for a in under_way], [], [], max(soonest_s, 0))
        for asking in list(under_way):
            late = time.monotonic() > asking.ends_s
            if late or (asking.reader in ready and asking.hear()):
                answers[asking.question.name] = asking.end(late)
                under_way.remove(asking)
                if not asking.answered and not device_is_well(WELL_S_MAX):
                    sick = f"not asked: the device is sick after {asking.question.name}"
                    answers |= {question.name: sick for question in waiting}
                    waiting.clear()
    return answers | {question.name: "not asked: no time left" for question in waiting}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.driver.questions")
    parser.add_argument("--json", type=Path, help="a file to keep the answers in")
    parser.add_argument("--against", type=Path, help="show only what differs from kept answers")
    parser.add_argument("--workers", type=int, default=8, help="questions at a time")
    parser.add_argument("--each", type=float, default=8, help="seconds for a question")
    parser.add_argument("--all", type=float, default=55, help="seconds for all of them")
    parser.add_argument(
        "--subjects", nargs="+", choices=SUBJECTS, default=SUBJECTS, help="what to ask about"
    )
    parser.add_argument("--only", help="questions whose name contains this")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    for subject in options.subjects:
        importlib.import_module(f"tests.driver.asked.{subject}")
    chosen = [q for q in QUESTIONS.values() if options.only is None or options.only in q.name]
    began_s = time.monotonic()
    ends_s = began_s + options.all
    print(f"driver under test: {driver_kind()}", flush=True)
    quiet = [question for question in chosen if question.alone]
    others = [question for question in chosen if not question.alone]
    answers = ask_all(quiet, 1, options.each, ends_s)
    answers |= ask_all(others, options.workers, options.each, ends_s)
    kept = json.loads(options.against.read_text()) if options.against else None
    for question in chosen:
        answer = answers[question.name]
        if kept is not None and kept.get(question.name) == answer:
            continue
        print(f"\n{question.name}: {question.text}\n  -> {answer}")
        if kept is not None:
            print(f"  kept: {kept.get(question.name)}")
    if options.json:
        options.json.write_text(json.dumps(answers, indent=1) + "\n")
    print(f"\n{len(answers)} questions, {time.monotonic() - began_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
