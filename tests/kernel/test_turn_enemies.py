"""`gpushare.turn()` where everything goes wrong at the worst moment: without a kernel."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from jupyter_gpushare.kernel.environment import SHIM_DIR
from jupyter_gpushare.kernel.magics import api
from tests.support.waits import WAIT_S_MAX

ENDS = pytest.mark.promise(
    "jupyter-45",
    "A `gpushare.turn()` ends whatever happens: an exception, an interrupt at any line, a task "
    "that is cancelled or abandoned, other threads in the same turn",
)
LINES_MAX = 200


class Hook:
    """What the bootstrap told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def gpushare_cell_began(self) -> None:
        self.told.append("began")

    def gpushare_cell_ended(self) -> None:
        self.told.append("ended")

    def gpushare_waits_cancelled(self) -> int:
        return 0


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SHIM_DIR))
    monkeypatch.delitem(sys.modules, "gpushare_bootstrap", raising=False)
    module = importlib.import_module("gpushare_bootstrap")
    yield module
    sys.modules.pop("gpushare_bootstrap", None)


@pytest.fixture
def hook(bootstrap: Any) -> Iterator[Hook]:
    hook = Hook()
    shell = SimpleNamespace(showtraceback=lambda *_, **__: None)
    bootstrap._reporter = bootstrap.CellReporter(hook, shell)
    yield hook
    assert not bootstrap._reporter._running


def interrupt_at(line: int, work: Callable[[], None]) -> bool:
    """Ctrl+C as soon as so many lines of the turn have run; False when it has fewer."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in (api.__file__, str(SHIM_DIR / "gpushare_bootstrap.py")):
            return trace
        if frame.f_code.co_name == "__del__":
            return None  # Python shows what is raised there, and goes on
        if event == "line":
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@ENDS
@pytest.mark.full
def test_an_interrupt_at_any_line_leaves_no_turn(hook: Hook) -> None:
    """Afterwards nothing is in a turn, and the next turn is told as ever."""

    def work() -> None:
        with api.turn():
            pass

    line = 1
    while interrupt_at(line, work):
        gc.collect()
        work()
        assert hook.told[-1:] == ["ended"], f"line {line}"
        assert hook.told.count("ended") <= hook.told.count("began") + 1
        hook.told.clear()
        line += 1
        assert line < LINES_MAX
    assert line > 20


@ENDS
def test_threads_in_one_turn_leave_their_own_entry(hook: Hook) -> None:
    """The one that entered first leaves first, and the other is still in it."""
    shared, entered, go = api.turn(), threading.Event(), threading.Event()

    def work() -> None:
        with shared:
            entered.set()
            go.wait(WAIT_S_MAX)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(WAIT_S_MAX)
    with shared:
        pass
    assert hook.told == ["began"]
    go.set()
    thread.join()
    assert hook.told == ["began", "ended"]


@ENDS
def test_a_signal_handler_may_use_a_turn_at_the_worst_moment(bootstrap: Any, hook: Hook) -> None:
    """It runs on the thread that is telling of another one."""
    with bootstrap._reporter._lock, api.turn():
        pass
    assert hook.told == ["began", "ended"]


@ENDS
def test_tasks_that_are_cancelled_or_abandoned(hook: Hook) -> None:
    """The end is told when the task is cancelled, and when its coroutine is thrown away."""
    reached = []

    @api.turn
    async def for_ever() -> None:
        reached.append(True)
        await asyncio.get_running_loop().create_future()

    async def cancels() -> None:
        task = asyncio.ensure_future(for_ever())
        while not reached:
            await asyncio.sleep(0)
        assert hook.told == ["began"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancels())
    assert hook.told == ["began", "ended"]

    class Waits:
        def __await__(self) -> Iterator[None]:
            yield

    @api.turn
    async def waits() -> None:
        await Waits()

    abandoned: Coroutine[Any, Any, None] = waits()
    abandoned.send(None)
    assert hook.told[2:] == ["began"]
    del abandoned
    gc.collect()
    assert hook.told[2:] == ["began", "ended"]


@ENDS
def test_what_is_called_like_a_coroutine_function_is_in_the_turn(hook: Hook) -> None:
    """Its work runs when it is awaited, and not when it is called."""

    class Async:
        async def __call__(self) -> list[str]:
            await asyncio.sleep(0)
            return list(hook.told)

    assert asyncio.run(api.turn(Async())())[-1] == "began"
    assert hook.told[-1] == "ended"


def test_methods_of_a_class_stay_what_they_are(hook: Hook) -> None:
    """Above `@staticmethod` and `@classmethod` too; a class itself is not marked."""

    class Model:
        @api.turn
        @staticmethod
        def double(number: int) -> int:
            return 2 * number

        @api.turn
        @classmethod
        def name(cls) -> str:
            return cls.__name__

        @api.turn
        def told(self) -> str:
            return hook.told[-1]

    assert (Model().double(2), Model().name(), Model().told()) == (4, "Model", "began")
    with pytest.raises(TypeError, match="marks a function"):
        api.turn(Model)


def test_a_turn_that_is_left_twice(hook: Hook) -> None:
    """Nothing happens, and nobody else's turn ends."""
    with api.turn():
        turn = api.turn()
        with turn:
            pass
        turn.__exit__(None, None, None)
        assert hook.told == ["began"]
