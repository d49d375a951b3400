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
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

NOTICE = "GPUSHARE_NOTICE"
API_VERSION = 1
MAGIC = "gpushare"
API = "gpushare"
MAGICS_DIR = Path(__file__).absolute().parent.parent / "magics"
API_FILE = MAGICS_DIR / "api.py"
INTERRUPTED = "This cell was interrupted while it waited for the GPU."
# How frameworks word the answer of a cancelled call, and what libraries on the driver make of it.
CANCELLED_CALL = re.compile(
    "NOT_PERMITTED|operation not permitted|CU(BLAS|DNN|FFT|RAND|SOLVER|SPARSE)_STATUS_"
)
CAUSES_MAX = 16
FRAMEWORKS = ("torch", "cupy")
INTERRUPTS = ("KeyboardInterrupt", "CancelledError")
ERRORS = ("error_before_exec", "error_in_exec")


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
        _forget_completer(shell)  # loaded again, it would be asked twice
        shell.set_hook("complete_command", complete, str_key="%" + MAGIC)
        _forget_transform(shell)
        if hasattr(shell, "input_transformer_manager"):  # IPython 7 and later
            shell.input_transformer_manager.cleanup_transforms.append(cell_to_line)
        if not any(type(finder) is ApiFinder for finder in sys.meta_path):
            sys.meta_path.append(ApiFinder())
        hook = _find_hook()
        if hook is not None and _reporter is None:
            _reporter = CellReporter(hook, shell)
            shell.events.register("pre_run_cell", _reporter.pre_run_cell)
            shell.events.register("post_run_cell", _reporter.post_run_cell)
    except Exception as error:  # noqa: BLE001 - the kernel outlives our bugs
        _complain(error)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython for %unload_ext."""
    global _reporter
    _forget_completer(shell)
    _forget_transform(shell)
    sys.meta_path[:] = [each for each in sys.meta_path if type(each) is not ApiFinder]
    shell.magics_manager.magics["line"].pop(MAGIC, None)
    reporter, _reporter = _reporter, None
    if reporter is not None:
        shell.events.unregister("pre_run_cell", reporter.pre_run_cell)
        shell.events.unregister("post_run_cell", reporter.post_run_cell)
        reporter.end_all()


def cell_to_line(lines: Any) -> Any:
    """Of a cell that begins with `%%gpushare`, that line becomes a call; the rest stays as it is.
    Part of IPython's input transformation, which asks also while somebody types."""
    first = lines[0].rstrip() if lines else ""
    if first.split(None, 1)[:1] != ["%%" + MAGIC]:
        return lines
    options = first[len(MAGIC) + 2 :].strip()
    call = "__import__('sys').modules['gpushare_bootstrap'].cell_begins({!r}, get_ipython())\n"
    return [call.format(options), *lines[1:]]


def cell_begins(options: str, shell: Any) -> None:
    """`%%gpushare OPTIONS`."""
    try:
        said = _magics().begin(options, shell, _reporter, _notice)
        if said:
            print(said)
    except Exception as error:  # noqa: BLE001 - a notebook sees a sentence, not our traceback
        print(f"%%gpushare failed: {error!r}. Please report it.")


def _forget_transform(shell: Any) -> None:
    cleanups = getattr(getattr(shell, "input_transformer_manager", None), "cleanup_transforms", [])
    cleanups[:] = [each for each in cleanups if each is not cell_to_line]


def gpushare(line: str) -> None:
    """Who has the GPU and who waits. `%gpushare help` lists the sub-commands."""
    try:
        view = _magics().gpushare(line, notice=_notice)
        if view is not None:
            from IPython.display import display

            display(view)
    except Exception as error:  # noqa: BLE001 - a notebook sees a sentence, not our traceback
        print(f"%gpushare failed: {error!r}. Please report it.")


def trim_now() -> Any:
    """The Jupyter server asks for it in the user's name, in a request without code."""
    return _magics().trim_now(_reporter, _notice)


class ApiFinder:
    """`import gpushare`. Python asks it last, so a module of the user of that name goes first."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Part of Python's import."""
        return importlib.util.spec_from_file_location(API, str(API_FILE)) if name == API else None


def complete(_: Any, event: Any) -> Any:
    """IPython's hook for what the Tab key offers after the magic's name."""
    try:
        return _magics().completions(event.text_until_cursor)
    except Exception:  # noqa: BLE001 - then there is nothing to offer
        return []


def _forget_completer(shell: Any) -> None:
    dispatcher = getattr(shell, "strdispatchers", {}).get("complete_command")
    getattr(dispatcher, "strs", {}).pop("%" + MAGIC, None)


def _magics() -> Any:
    """The rest of it lies beside our folder and is read when it is first wanted."""
    name = "gpushare_magics"
    if name in sys.modules:
        return sys.modules[name]
    spec: Any = importlib.util.spec_from_file_location(
        name, str(MAGICS_DIR / "__init__.py"), submodule_search_locations=[str(MAGICS_DIR)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its files import each other
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
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

    def __init__(self, hook: Any, shell: Any) -> None:
        self._hook = hook
        self._pid = os.getpid()
        # A signal handler or a finalizer that leaves a turn may run in the middle of what follows.
        self._lock = threading.RLock()
        # The id of a cell's ExecutionInfo: that object and its thread. Guarded by _lock.
        self._running: Any = {}
        self._told = False  # What the hook was told last. Guarded by _lock.
        # When the first of them began; when the cells before these began and ended. Guarded by
        # _lock.
        self._began_s = 0.0
        self._last_cell: Any = None
        self._endings = CancelledCells(hook, shell)
        self._interrupts = CancelledWaits(hook, self._endings.is_shown)

    def pre_run_cell(self, info: Any = None) -> None:
        """IPython's event. `info` is the same object as `result.info` of post_run_cell."""
        try:
            if os.getpid() != self._pid:
                return
            with self._lock:
                self._running[id(info)] = (info, threading.get_ident())
                self._tell()
            self._endings.cell_begins()
            self._interrupts.watch()
        except Exception as error:  # noqa: BLE001 - the kernel outlives our bugs
            _complain(error)

    def post_run_cell(self, result: Any = None) -> None:
        """IPython's event. Without a result, or with one whose beginning was never told (IPython
        makes a new one for a cell that it had to abandon), all cells of the thread have ended."""
        try:
            if os.getpid() != self._pid:
                return
            if _is_blank(result):
                return  # it never began, and may stand in another cell
            self._interrupts.unwatch()
            self._endings.cell_ends(result)
            try:
                self._give_caches_back(result)
            finally:  # also when an interrupt comes meanwhile
                self._cell_has_ended(result)
        except Exception as error:  # noqa: BLE001 - the kernel outlives our bugs
            _complain(error)

    def _give_caches_back(self, result: Any) -> None:
        """While the turn is still held. Whoever interrupts a cell wants its end, and another cell
        or turn of the kernel may want the memory."""
        if not any(name in sys.modules for name in FRAMEWORKS):
            return
        if any(type(getattr(result, name, None)).__name__ in INTERRUPTS for name in ERRORS):
            return
        if self.is_alone(getattr(result, "info", None)):
            _magics().CACHES.cell_ends()

    def _cell_has_ended(self, result: Any) -> None:
        with self._lock:
            if self._running.pop(id(getattr(result, "info", None)), None) is None:
                here = threading.get_ident()
                for key in [k for k, (_, where) in self._running.items() if where == here]:
                    del self._running[key]
            self._tell()

    def cell_here(self) -> Any:
        """The ExecutionInfo of the innermost cell on this thread, or None."""
        here = threading.get_ident()
        with self._lock:
            cells = [cell for cell, where in self._running.values() if where == here]
        return cells[-1] if cells else None

    def is_alone(self, mark: Any) -> bool:
        """No cell and no other turn of this process goes on."""
        with self._lock:
            return list(self._running) == [id(mark)]

    def is_running(self, cell: Any) -> bool:
        with self._lock:
            return id(cell) in self._running

    def turn_begins(self, mark: Any) -> None:
        """`gpushare.turn()`: it counts as a cell, and the end of its thread's cell does not end
        it."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._running[id(mark)] = (mark, None)
            self._tell()

    def turn_ends(self, mark: Any) -> None:
        """Also of one whose beginning was not told, or that has ended already."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._running.pop(id(mark), None)
            self._tell()

    def cells_ago(self) -> Any:
        """This cell and the last one, each as the seconds from now (none above 0) at which it
        began and ended; None for what is not known. Cells that overlap are one."""
        now_s = time.monotonic()
        with self._lock:
            here = (self._began_s - now_s, 0.0) if self._running else None
            last = self._last_cell
        return here, None if last is None else tuple(each - now_s for each in last)

    def _tell(self) -> None:
        """The lock is held. What an interrupt has kept from the hook is told by the next call."""
        runs = bool(self._running)
        if runs and not self._told:
            self._hook.gpushare_cell_began()
            self._began_s = time.monotonic()
        elif self._told and not runs:
            self._hook.gpushare_cell_ended()
            self._last_cell = (self._began_s, time.monotonic())
        self._told = runs

    def end_all(self) -> None:
        """No more reports will come."""
        self._endings.end()
        with self._lock:
            if os.getpid() == self._pid:
                self._running.clear()
                self._tell()


class CancelledWaits:
    """Lets an async cell whose wait was cancelled end with KeyboardInterrupt.

    In other cells Python's own SIGINT handler raises it. While an async cell runs, ipykernel has a
    handler that only cancels the cell's task later, so that the cell would end with whatever error
    the framework made of the cancelled call.
    """

    def __init__(self, hook: Any, is_shown: Any) -> None:
        self._hook = hook
        self._is_shown = is_shown
        self._seen = hook.gpushare_waits_cancelled()
        self._task: Any = None
        self._previous: Any = None

    def watch(self) -> None:
        """At the beginning of a cell: put our handler before ipykernel's, if that is there."""
        if not _is_main_thread() or self._previous is not None:
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
        if self._previous is None or not _is_main_thread():
            return
        if signal.getsignal(signal.SIGINT) == self._on_sigint:
            signal.signal(signal.SIGINT, self._previous)
        self._previous = self._task = None

    def _on_sigint(self, signum: int, frame: Any) -> None:
        """Python runs this between two bytecodes: a call that waited in the hook has returned."""
        if self._is_shown() and not _is_cells_code(frame):
            return  # the scheduler's word of this interrupt was quicker, and the cell has ended
        cancelled = self._hook.gpushare_waits_cancelled()
        fresh, self._seen = cancelled != self._seen, cancelled
        if fresh and _current_task() is self._task and _is_inside_user_code(frame):
            raise KeyboardInterrupt
        self._previous(signum, frame)


class CancelledCells:
    """A cell whose wait for the GPU was cancelled ends with a KeyboardInterrupt of one line.

    The cancelled call answers with an error, and frameworks make an exception of it. Where a signal
    interrupts the kernel, that exception is the context of the KeyboardInterrupt. Where the
    scheduler alone has cancelled the wait, nothing else would end the cell. IPython shows the
    exception that ends a cell, and only there it is replaced: code that catches one goes on.
    """

    def __init__(self, hook: Any, shell: Any) -> None:
        self._hook = hook
        self._shell = shell
        self._show = shell.showtraceback
        self._here = threading.local()
        shell.showtraceback = self.showtraceback
        kernel: Any = getattr(shell, "kernel", None)
        self._kernel = kernel
        self._cancel: Any = getattr(kernel, "_cancel_on_sigint", None)
        if self._cancel is not None:
            with contextlib.suppress(Exception):  # as ever, with a kernel that refuses it
                kernel._cancel_on_sigint = self.cancel_on_sigint

    def end(self) -> None:
        """The shell and the kernel do it themselves again, unless somebody else does by now."""
        if vars(self._shell).get("showtraceback") == self.showtraceback:
            del self._shell.showtraceback
        patched = vars(self._kernel) if self._cancel is not None else {}
        if patched.get("_cancel_on_sigint") == self.cancel_on_sigint:
            del self._kernel._cancel_on_sigint

    def cell_begins(self) -> None:
        """What is cancelled from now on is this cell's."""
        self._here.before = self._hook.gpushare_waits_cancelled()
        self._here.shown = self._here.replaced = None
        self._here.has_shown = False
        if signal.getsignal(signal.SIGINT) == self._on_late_sigint and _is_main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def cell_ends(self, result: Any) -> None:
        """The reply tells the exception that the notebook has shown."""
        here = self._here
        if getattr(result, "success", False):
            here.has_shown = False  # that was a cell within it, or its own code
        shown, replaced = getattr(here, "shown", None), getattr(here, "replaced", None)
        if shown is None:
            return
        here.before = self._hook.gpushare_waits_cancelled()
        here.shown = here.replaced = None
        if any(getattr(result, name, None) is replaced for name in ERRORS):
            result.error_before_exec, result.error_in_exec = None, shown

    def is_shown(self) -> bool:
        """Whether the notebook shows already how this thread's cell has ended."""
        return getattr(self._here, "shown", None) is not None

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> Any:
        """In the place of the shell's method of this name."""
        try:
            _, error, place = exc_tuple or sys.exc_info()
            if self._has_ended_the_cell(error):
                shown = _interrupt_of_one_line(error, place)
                exc_tuple = (type(shown), shown, place)
                self._here.shown, self._here.replaced = shown, error
                self._here.has_shown = True
                if shown is not error:
                    self._expect_a_late_sigint()
        except Exception as problem:  # noqa: BLE001 - the kernel outlives our bugs
            _complain(problem)
        return self._show(exc_tuple, *args, **kwargs)

    def _has_ended_the_cell(self, error: Any) -> bool:
        """Whether a wait was cancelled since the cell began, and this exception tells of it."""
        before = getattr(self._here, "before", None)
        if before is None or before == self._hook.gpushare_waits_cancelled():
            return False
        # ipykernel cancels the task of an async cell.
        if type(error) is KeyboardInterrupt or type(error).__name__ == "CancelledError":
            return True
        for _ in range(CAUSES_MAX):
            if error is None or CANCELLED_CALL.search(str(error)):
                break
            error = error.__cause__
        return error is not None

    def _expect_a_late_sigint(self) -> None:
        """The scheduler's word was quicker than the signal of the same interrupt, which would now
        end the kernel's answer in the middle. ipykernel has its handlers anew for each message."""
        if _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_late_sigint)

    @contextlib.contextmanager
    def cancel_on_sigint(self, *arguments: Any) -> Any:
        """In the place of the kernel's `_cancel_on_sigint`, around an async cell: after it, the
        kernel puts the handler back that it has found here, and only then answers."""
        self._here.has_shown = False  # nobody tells of the beginning of a silent one
        if _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_late_sigint)
        with self._cancel(*arguments):
            yield

    def _on_late_sigint(self, signum: int, frame: Any) -> None:
        """The notebook shows how the cell has ended, and the kernel is about to answer."""
        if not getattr(self._here, "has_shown", False) or _is_cells_code(frame):
            signal.default_int_handler(signum, frame)


def _interrupt_of_one_line(error: Any, place: Any) -> Any:
    """As it is shown: without the error of the binding, and without the frames of it."""
    shown = error if type(error) is KeyboardInterrupt else KeyboardInterrupt()
    shown.args = shown.args or (INTERRUPTED,)
    shown.__cause__ = shown.__context__ = None
    vars(shown)["_render_traceback_"] = _render_traceback
    return shown.with_traceback(place)


def _render_traceback() -> Any:
    """For IPython, which asks an exception for this."""
    return ["KeyboardInterrupt: " + INTERRUPTED]


def _is_blank(result: Any) -> bool:
    """Of such a cell IPython tells the end alone."""
    code = getattr(getattr(result, "info", None), "raw_cell", None)
    return isinstance(code, str) and not code.strip()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


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


def _is_cells_code(frame: Any) -> bool:
    """False while IPython shows an exception, and where it is done with the cell."""
    while frame is not None and frame.f_code.co_name not in ("run_code", "showtraceback"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "run_code"


def _show_once(shell: Any, notice: str) -> None:
    def show(*_: Any) -> None:
        shell.events.unregister("pre_run_cell", show)
        sys.stderr.write(notice + "\n")

    shell.events.register("pre_run_cell", show)


def _complain(error: Exception) -> None:
    """Into the kernel's log, not into the notebook: the user's work goes on."""
    with contextlib.suppress(Exception):
        print(f"jupyter-gpushare: cells are not reported: {error!r}", file=sys.__stderr__)
