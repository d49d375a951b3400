"""`import gpushare` in a kernel: `gpushare.turn()` for code that runs outside of cells.

The bootstrap offers this file to kernels of any environment, under the name `gpushare` and only
where no other module has that name: standard library only, for Python 3.6 and later. Where the GPU
is not shared, or in a child process, a turn does nothing.
"""

import contextlib
import functools
import inspect
import sys
import threading
from typing import Any

__all__ = ["turn"]


def turn(function: Any = None) -> Any:
    """Marks work of a thread or a callback as a cell is marked.

    `with gpushare.turn():` (or `async with`), or as a decorator `@gpushare.turn`, also of a
    coroutine function. It does not wait: the first GPU call in it waits for the GPU, as in a cell.
    The GPU goes to the next in the queue when the last cell and the last turn of the kernel end.
    """
    marked = _Turn()
    return marked if function is None else marked(function)


class _Turn:
    """It may be entered again while it lasts, and by several threads."""

    def __init__(self) -> None:
        # Each entry: its mark, the reporter that was told of it, and the thread.
        self._entered: Any = {}

    def __enter__(self) -> "_Turn":
        reporter, mark = _reporter(), object()
        try:
            self._entered[mark] = (reporter, threading.get_ident())
            if reporter is not None:
                reporter.turn_begins(mark)
        except BaseException:  # an interrupt in here: nobody would tell of the end
            self._end(mark, reporter)
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._leave()

    async def __aenter__(self) -> "_Turn":
        return self.__enter__()

    async def __aexit__(self, *_: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        chosen: Any = []
        try:
            self._leave_one(chosen)
        except BaseException:  # an interrupt in here: the end may be told again
            self._leave_one(chosen)
            raise

    def _leave_one(self, chosen: Any) -> None:
        """The last entry of this thread; where another thread leaves, any: they are alike."""
        here = threading.get_ident()
        entries = [(mark, *entry) for mark, entry in list(self._entered.items())]
        if not chosen:
            chosen.extend([each for each in entries if each[2] == here][-1:] or entries[-1:])
        for mark, reporter, _ in chosen:
            self._end(mark, reporter)

    def __del__(self) -> None:
        """An interrupt before the first line of `__exit__` has kept it from ending."""
        with contextlib.suppress(Exception):
            for mark, (reporter, _) in list(self._entered.items()):
                self._end(mark, reporter)

    def _end(self, mark: Any, reporter: Any) -> None:
        if reporter is not None:
            reporter.turn_ends(mark)
        self._entered.pop(mark, None)

    def __call__(self, function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("turn() does not mark a generator. Use `with turn():` inside of it.")
        if not callable(function) or inspect.isclass(function):
            raise TypeError("turn() marks a function. Write `with turn():` for a block of code.")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def marked(*args: Any, **kwargs: Any) -> Any:
                with _Turn():
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def marked(*args: Any, **kwargs: Any) -> Any:
                with _Turn():
                    answer = function(*args, **kwargs)
                # Of an object that is called as a coroutine function is, nothing has run yet.
                return _awaited(answer) if inspect.iscoroutine(answer) else answer

        return marked


async def _awaited(answer: Any) -> Any:
    with _Turn():
        return await answer


def _reporter() -> Any:
    """The bootstrap's, if it has found the hook in this process."""
    return getattr(sys.modules.get("gpushare_bootstrap"), "_reporter", None)
