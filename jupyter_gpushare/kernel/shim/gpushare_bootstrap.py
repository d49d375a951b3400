"""Tells the hook where notebook cells begin and end, and offers `%gpushare`. Runs in the kernel's
own Python.

That Python may be of any environment: old, and without the package that this file comes from. So
it is one file, standard library only, written for Python 3.6 and later; it never raises; and where
the hook is not in the process it registers nothing. `ipykernel --ext=gpushare_bootstrap` loads it
as an IPython extension from a folder on PYTHONPATH that the kernel's children shall not inherit.
"""

import contextlib
import ctypes
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

NOTICE = "GPUSHARE_NOTICE"
API_VERSION = 1
MAGIC = "gpushare"
MAGICS_FILE = Path(__file__).absolute().parent.parent / "magics.py"


def _leave_no_trace() -> str:
    """Take our folder from this process's import path and from what its children inherit.

    Returns the notice, which they shall not inherit either."""
    here = str(Path(__file__).absolute().parent)
    sys.path[:] = [path for path in sys.path if path != here]
    value = os.environ.get("PYTHONPATH")
    if value is not None:
        rest = [path for path in value.split(os.pathsep) if path != here]
        if rest:
            os.environ["PYTHONPATH"] = os.pathsep.join(rest)
        else:
            del os.environ["PYTHONPATH"]
    return os.environ.pop(NOTICE, "")


_notice = _leave_no_trace()
_reporter: Any = None
_is_loaded = False


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython. The notice, if there is one, comes with the first cell."""
    global _reporter, _is_loaded
    try:
        if _notice and not _is_loaded:
            _show_once(shell, _notice)
        _is_loaded = True
        shell.register_magic_function(gpushare, magic_kind="line", magic_name=MAGIC)
        hook = _find_hook()
        if hook is not None and _reporter is None:
            _reporter = CellReporter(hook)
            shell.events.register("pre_run_cell", _reporter.pre_run_cell)
            shell.events.register("post_run_cell", _reporter.post_run_cell)
    except Exception as error:  # noqa: BLE001 - the kernel outlives our bugs
        _complain(error)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython for %unload_ext."""
    global _reporter
    shell.magics_manager.magics["line"].pop(MAGIC, None)
    reporter, _reporter = _reporter, None
    if reporter is not None:
        shell.events.unregister("pre_run_cell", reporter.pre_run_cell)
        shell.events.unregister("post_run_cell", reporter.post_run_cell)
        reporter.end_all()


def gpushare(line: str) -> None:
    """Who has the GPU and who waits; `release` gives it away; `hold 10m` keeps it between cells."""
    try:
        module = sys.modules.get("gpushare_magics") or _load_magics()
        view = module.gpushare(line, notice=_notice)
        if view is not None:
            from IPython.display import display

            display(view)
    except Exception as error:  # noqa: BLE001 - a notebook sees a sentence, not our traceback
        print(f"%gpushare failed: {error!r}. Please report it.")


def _load_magics() -> Any:
    """The rest of it lies beside our folder and is read when it is first wanted."""
    spec: Any = importlib.util.spec_from_file_location("gpushare_magics", str(MAGICS_FILE))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["gpushare_magics"] = module
    return module


def _find_hook() -> Any:
    """The hook's functions in this process, or None. They never block, so the GIL is kept: giving
    it up could cost a switch interval of 5 ms at the very moment the device should change hands."""
    try:
        hook = ctypes.PyDLL(None)
        hook.gpushare_api_version.restype = ctypes.c_int
        if hook.gpushare_api_version() != API_VERSION:
            return None
        for name in ("gpushare_cell_began", "gpushare_cell_ended"):
            function = getattr(hook, name)
            function.argtypes = []
            function.restype = None
        hook.gpushare_waits_cancelled.argtypes = []
        hook.gpushare_waits_cancelled.restype = ctypes.c_uint64
    except (AttributeError, OSError):
        return None
    return hook


class CellReporter:
    """Cells may overlap (subshells run on threads of their own) and nest (`run_cell` in a cell):
    the process is in a cell from the first that begins to the last that ends."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook
        self._pid = os.getpid()
        self._lock = threading.Lock()
        # The id of a cell's ExecutionInfo: that object and its thread. Guarded by _lock.
        self._running: Any = {}
        self._interrupts = CancelledWaits(hook)

    def pre_run_cell(self, info: Any = None) -> None:
        """IPython's event. `info` is the same object as `result.info` of post_run_cell."""
        try:
            if os.getpid() != self._pid:
                return
            with self._lock:
                first = not self._running
                self._running[id(info)] = (info, threading.get_ident())
                if first:
                    self._hook.gpushare_cell_began()
            self._interrupts.watch()
        except Exception as error:  # noqa: BLE001 - the kernel outlives our bugs
            _complain(error)

    def post_run_cell(self, result: Any = None) -> None:
        """IPython's event. Without a result, or with one whose beginning was never told (IPython
        makes a new one for a cell that it had to abandon), all cells of the thread have ended."""
        try:
            if os.getpid() != self._pid:
                return
            self._interrupts.unwatch()
            with self._lock:
                if not self._running:
                    return
                if self._running.pop(id(getattr(result, "info", None)), None) is None:
                    here = threading.get_ident()
                    for key in [k for k, (_, where) in self._running.items() if where == here]:
                        del self._running[key]
                if not self._running:
                    self._hook.gpushare_cell_ended()
        except Exception as error:  # noqa: BLE001 - the kernel outlives our bugs
            _complain(error)

    def end_all(self) -> None:
        """No more reports will come."""
        with self._lock:
            if self._running and os.getpid() == self._pid:
                self._running.clear()
                self._hook.gpushare_cell_ended()


class CancelledWaits:
    """Lets an async cell whose wait was cancelled end with KeyboardInterrupt.

    In other cells Python's own SIGINT handler raises it. While an async cell runs, ipykernel has a
    handler that only cancels the cell's task later, so that the cell would end with whatever error
    the framework made of the cancelled call.
    """

    def __init__(self, hook: Any) -> None:
        self._hook = hook
        self._seen = hook.gpushare_waits_cancelled()
        self._task: Any = None
        self._previous: Any = None

    def watch(self) -> None:
        """At the beginning of a cell: put our handler before ipykernel's, if that is there."""
        if threading.current_thread() is not threading.main_thread() or self._previous is not None:
            return
        previous = signal.getsignal(signal.SIGINT)
        if not callable(previous) or previous is signal.default_int_handler:
            return
        self._task = _current_task()
        if self._task is None:
            return
        self._seen = self._hook.gpushare_waits_cancelled()
        self._previous = previous
        signal.signal(signal.SIGINT, self._on_sigint)

    def unwatch(self) -> None:
        """At its end: ipykernel's handler is back, unless somebody has replaced ours meanwhile."""
        if self._previous is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) == self._on_sigint:
            signal.signal(signal.SIGINT, self._previous)
        self._previous = self._task = None

    def _on_sigint(self, signum: int, frame: Any) -> None:
        """Python runs this between two bytecodes: a call that waited in the hook has returned."""
        cancelled = self._hook.gpushare_waits_cancelled()
        fresh, self._seen = cancelled != self._seen, cancelled
        if fresh and _current_task() is self._task and _is_inside_user_code(frame):
            raise KeyboardInterrupt
        self._previous(signum, frame)


def _current_task() -> Any:
    """The asyncio task that runs on this thread, or None."""
    asyncio: Any = sys.modules.get("asyncio")
    try:
        current = getattr(asyncio, "current_task", None) or asyncio.Task.current_task
        return current()
    except (AttributeError, RuntimeError):
        return None


def _is_inside_user_code(frame: Any) -> bool:
    """True below IPython's `run_ast_nodes`, which turns every exception into the cell's error.
    Raised anywhere else, a KeyboardInterrupt would end the kernel's event loop."""
    frame = frame.f_back if frame is not None else None
    while frame is not None:
        if frame.f_code.co_name == "run_ast_nodes":
            return True
        frame = frame.f_back
    return False


def _show_once(shell: Any, notice: str) -> None:
    def show(*_: Any) -> None:
        shell.events.unregister("pre_run_cell", show)
        sys.stderr.write(notice + "\n")

    shell.events.register("pre_run_cell", show)


def _complain(error: Exception) -> None:
    """Into the kernel's log, not into the notebook: the user's work goes on."""
    with contextlib.suppress(Exception):
        print(f"jupyter-gpushare: cells are not reported: {error!r}", file=sys.__stderr__)
