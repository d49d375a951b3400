"""`import gpushare` in a kernel: `gpushare.turn()` for code that runs outside of cells.

The bootstrap offers this file to kernels of any environment, under the name `gpushare` and only
where no other module has that name: standard library only, for Python 3.6 and later. Where the GPU
is not shared, or in a child process, a turn does nothing.
"""

import functools
import inspect
import sys
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
        # Each entry's mark, and the reporter that was told of it.
        self._entered: Any = []

    def __enter__(self) -> "_Turn":
        reporter, mark = _reporter(), object()
        self._entered.append((reporter, mark))
        try:
            if reporter is not None:
                reporter.turn_begins(mark)
        except BaseException:  # an interrupt in here: nobody would tell of the end
            self._leave()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._leave()

    async def __aenter__(self) -> "_Turn":
        return self.__enter__()

    async def __aexit__(self, *_: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        reporter, mark = self._entered.pop()
        if reporter is not None:
            reporter.turn_ends(mark)

    def __call__(self, function: Any) -> Any:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("turn() does not mark a generator. Use `with turn():` inside of it.")
        if not callable(function):
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
                    return function(*args, **kwargs)

        return marked


def _reporter() -> Any:
    """The bootstrap's, if it has found the hook in this process."""
    return getattr(sys.modules.get("gpushare_bootstrap"), "_reporter", None)
