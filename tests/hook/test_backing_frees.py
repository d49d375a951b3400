"""A free waits for the work that may use its memory, stream by stream, and disturbs no capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.compiled import compiled_library
from tests.support.paths import SIM_LIBRARIES
from tests.support.sim import SimulatedMachine

LINES = [
    "spin = lambda stream, ms: launch('spin', stream, c_uint64(ms * 1_000_000))",
    "idle = lambda stream: call('cuStreamQuery', c_void_p(stream)) == 0",
    "LEGACY, OWN = 1, 2",
]


@pytest.fixture
def backed(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    swapping = {**environment, **sim.env(), "LD_PRELOAD": environment["LD_PRELOAD"]}
    swapping |= {"LD_LIBRARY_PATH": str(SIM_LIBRARIES), "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


@pytest.mark.promise("backing-38", "A free never synchronises a context, so it harms no capture")
def test_a_free_never_synchronises_a_context(backed: Session) -> None:
    """That ends captures of every mode, also such as begin while it lasts."""
    faults = {"GPUSHARE_SIM_FAULTS": "fail cuCtxSynchronize times=0 result=900"}
    lines = [
        *LINES,
        "s, a = stream_create(), alloc(20 * MIB)",
        "spin(s, 30)",
        "print(free(a), idle(s))",
    ]
    assert backed.run(*lines, **faults) == ["0 True"]


@pytest.mark.promise("backing-38")
@pytest.mark.parametrize(
    "stream", ["stream_create()", "made('cuStreamCreate', 0)", "LEGACY", "OWN"]
)
def test_a_free_waits_for_work_of_each_kind_of_stream(backed: Session, stream: str) -> None:
    """Created ones, blocking or not, the legacy stream, and threads' own default streams."""
    lines = [*LINES, f"s, a = {stream}, alloc(20 * MIB)", "spin(s, 50)", "print(free(a), idle(s))"]
    assert backed.run(*lines) == ["0 True"]


@pytest.mark.promise("backing-38")
def test_a_free_waits_for_the_work_of_a_stream_that_was_destroyed(
    backed: Session, sim: SimulatedMachine
) -> None:
    """Its work goes on; the free returns behind it."""
    lines = [
        *LINES,
        "import time",
        "s, a = stream_create(), alloc(20 * MIB)",
        "spin(s, 50)",
        "assert call('cuStreamDestroy_v2', c_void_p(s)) == 0",
        "print(free(a), time.monotonic_ns())",
    ]
    (line,) = backed.run(*lines)
    (launch,) = [record for record in sim.journal() if record.kind.name == "LAUNCH"]
    assert line.split()[0] == "0"
    assert launch.ended_ns <= int(line.split()[1])


PAUSES = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local int pauses;

void pauses_once(void) {
    pauses = 1;
}

static const char *file(const char *name) {
    static _Thread_local char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("GPUSHARE_SIM_DIR"), name);
    return path;
}

/* A thread that is to pause does so until `destroyed` is there; `paused` tells that it does. */
long syscall(long number, ...) {
    static long (*real)(long number, ...);
    if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long values[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(list, long);
    va_end(list);
    const int sleeps = number == SYS_nanosleep && pauses;
    if (sleeps) close(open(file("paused"), O_CREAT | O_WRONLY, 0600));
    while (sleeps && access(file("destroyed"), F_OK) != 0)
        real(number, values[0], values[1]);
    if (sleeps) pauses = 0;
    return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
"""


def test_a_free_waits_for_the_work_of_a_stream_that_is_destroyed_meanwhile(backed: Session) -> None:
    """Another thread destroys it between two looks of the free, which has seen it busy."""
    lines = [
        "import os",
        "from pathlib import Path",
        "files, answers = Path(os.environ['GPUSHARE_SIM_DIR']), []",
        "happened = lambda: (files / 'happened').exists()",
        "def frees():",
        "    call('cuCtxSetCurrent', c_void_p(CONTEXT)), ctypes.CDLL(None).pauses_once()",
        "    answers.append(free(a))",
        "s, a = stream_create(), alloc(20 * MIB)",
        "work = held(s)",
        "thread = threading.Thread(target=frees)",
        "thread.start()",
        "while not (files / 'paused').exists(): pass",
        "print(call('cuStreamDestroy_v2', c_void_p(s)), (files / 'destroyed').touch())",
        "while thread.is_alive() and not happened(): pass",
        "print(answers, sums())",
        "work.value = 1",
        "print(thread.join(), answers, sums())",
    ]
    looks_again = "stall cuCtxPushCurrent nth=2 ms=0 from=destroyed"  # one look is over then
    preload = f"{compiled_library(PAUSES)}:{backed.environment['LD_PRELOAD']}"
    told = backed.run(*lines, GPUSHARE_SIM_FAULTS=looks_again, LD_PRELOAD=preload)
    assert told == ["0 None", "[] (10, 0)", "None [0] (0, 0)"]


def test_a_free_waits_for_a_stream_that_is_on_its_way_out(backed: Session) -> None:
    """It looks when the stream has left the table and the event of its work is not kept yet."""
    lines = [
        "import os",
        "from pathlib import Path",
        "files, answers = Path(os.environ['GPUSHARE_SIM_DIR']), []",
        "happened = lambda call: call in (files / 'happened').read_text()",
        "on = lambda: call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "def frees():",
        "    on(), answers.append(free(a))",
        "def destroys():",
        "    ctypes.CDLL(None).prctl(15, b'destroys'), on()",
        "    call('cuStreamDestroy_v2', c_void_p(s))",
        "s, a = stream_create(), alloc(20 * MIB)",
        "work = held(s)",
        "(files / 'happened').touch(), (files / 'freed').touch()",
        "free_thread = threading.Thread(target=frees)",
        "free_thread.start()",
        "while not happened('cuStreamQuery'): pass",
        "thread = threading.Thread(target=destroys)",
        "thread.start()",
        "while not happened('cuCtxPushCurrent'): pass",
        "(files / 'go').touch(), thread.join(), (files / 'destroyed').touch()",
        "while free_thread.is_alive() and not happened('cuCtxPopCurrent'): pass",
        "print(answers, sums())",
        "work.value = 1",
        "print(free_thread.join(), answers, sums())",
    ]
    plan = (
        "stall cuStreamQuery nth=3 ms=0 from=freed",  # the free has looked
        "hold cuEventRecord thread=destroys until=go",  # out of the table, its event not kept
        "stall cuCtxPushCurrent nth=2 ms=0 from=go.held",  # the free has looked meanwhile
        "stall cuCtxPopCurrent nth=2 ms=0 from=destroyed",  # and once more
    )
    told = backed.run(*lines, GPUSHARE_SIM_FAULTS=";".join(plan))
    assert told == ["[] (10, 0)", "None [0] (0, 0)"]


@pytest.mark.promise("backing-38")
@pytest.mark.parametrize("stream", ["stream_create()", "LEGACY"])
def test_a_free_does_not_wait_for_what_comes_later(backed: Session, stream: str) -> None:
    """A thread that never lets a stream become idle does not hold up another one's free."""
    lines = [
        *LINES,
        f"s, a, over = {stream}, alloc(20 * MIB), []",
        "events = [c_void_p(made('cuEventCreate', 2)) for _ in range(2)]",
        "def one(number):",
        "    spin(s, 20), call('cuEventRecord', events[number % 2], c_void_p(s))",
        "def busy():",
        "    call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "    for number in range(1, 10**6):",
        "        if over: break",
        "        one(number), call('cuEventSynchronize', events[(number + 1) % 2])",
        "thread = threading.Thread(target=busy)",
        "one(0), thread.start()",
        "print(free(a)), over.append(1), thread.join()",
    ]
    assert backed.run(*lines) == ["0"]


@pytest.mark.promise("backing-38")
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_capture_that_begins_while_a_free_waits_is_valid(backed: Session, mode: int) -> None:
    """The free is done when its work is, whatever begins meanwhile."""
    lines = [
        *LINES,
        "s, t, a = stream_create(), stream_create(), alloc(20 * MIB)",
        "b, answers = alloc(MIB), []",
        "spin(s, 200)",
        "def frees():",
        "    call('cuCtxSetCurrent', c_void_p(CONTEXT)), answers.append(free(a))",
        "thread = threading.Thread(target=frees)",
        "thread.start()",
        f"begun = call('cuStreamBeginCapture_v2', c_void_p(t), {mode})",
        "thread.join(0.4)",
        "filled = call('cuMemsetD32Async', c_uint64(b), 1, c_size_t(64), c_void_p(t))",
        "print(begun, filled, call('cuStreamEndCapture', c_void_p(t), byref(c_uint64())))",
        "thread.join()",
        "print(answers, sums())",
    ]
    assert backed.run(*lines)[0] == "0 0 0"


@pytest.mark.promise("backing-38")
@pytest.mark.parametrize(
    "name, handle", [("cuMemFreeAsync", 2), ("cuMemFreeAsync_ptsz", 2), ("cuMemFreeAsync_ptsz", 0)]
)
def test_a_captured_free_is_refused_by_each_name_of_an_own_stream(
    backed: Session, name: str, handle: int
) -> None:
    """As the driver does: such a free would be a piece of the graph."""
    lines = [
        "own, a = c_void_p(2), alloc(20 * MIB)",
        "begun = call('cuStreamBeginCapture_v2', own, 2)",
        f"freed = call('{name}', c_uint64(a), c_void_p({handle}))",
        "print(begun, freed, call('cuStreamEndCapture', own, byref(c_uint64())), free(a))",
    ]
    assert backed.run(*lines) == ["0 1 0 0"]


@pytest.mark.promise(
    "hook-60", "A stream does not end while the hook has its handle in its hands, however long"
)
def test_a_stream_is_not_destroyed_while_a_free_records_in_it(backed: Session) -> None:
    """Recording waits where the stream's queue is full. The driver's own destruction waits then."""
    lines = [
        "import os, time",
        "from pathlib import Path",
        "files, answers = Path(os.environ['GPUSHARE_SIM_DIR']), []",
        "on = lambda: call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "s, a = stream_create(), alloc(20 * MIB)",
        "work = held(s)",
        "frees = threading.Thread(target=lambda: (on(), answers.append(free(a))))",
        "frees.start()",
        "while not (files / 'go.held').exists(): pass",
        "destroy = lambda: answers.append(('destroyed', call('cuStreamDestroy_v2', c_void_p(s))))",
        "destroys = threading.Thread(target=lambda: (on(), destroy()))",
        "destroys.start()",
        "destroys.join(1.5)",
        "print(answers)",
        "(files / 'go').touch(), destroys.join()",
        "print(answers)",
        "work.value = 1",
        "print(frees.join(), answers)",
    ]
    told = backed.run(*lines, GPUSHARE_SIM_FAULTS="hold cuEventRecord nth=1 until=go")
    assert told == ["[]", "[('destroyed', 0)]", "None [('destroyed', 0), 0]"]


NOW = "open(os.environ['GPUSHARE_SIM_DIR'] + '/now', 'w').close()"


@pytest.mark.promise("hook-17")
def test_a_free_waits_where_the_driver_refuses_the_context_once(backed: Session) -> None:
    """That says nothing of the work: it is asked again, as when a device is drained."""
    faults = {"GPUSHARE_SIM_FAULTS": "fail cuCtxPushCurrent times=1 result=999 from=now"}
    lines = [
        *LINES,
        "import os",
        "s, a = stream_create(), alloc(20 * MIB)",
        "spin(s, 50)",
        NOW,
        "print(free(a), idle(s))",
    ]
    assert backed.run(*lines, **faults) == ["0 True"]


@pytest.mark.promise("backing-38")
def test_a_stream_that_is_gone_does_not_fail_a_free(backed: Session) -> None:
    """It may end by a way that no wrapper sees; its work ended with it."""
    gone = "fail {} times=0 result=400 from=now"
    calls = ("cuStreamQuery", "cuEventRecord")
    faults = {"GPUSHARE_SIM_FAULTS": ";".join(gone.format(call) for call in calls)}
    lines = [*LINES, "import os", "s, a = stream_create(), alloc(20 * MIB)", NOW, "print(free(a))"]
    assert backed.run(*lines, **faults) == ["0"]


@pytest.mark.promise("hook-17")
def test_a_free_that_was_put_off_is_not_lost(backed: Session) -> None:
    """The driver tells nothing for as long as the hook asks: the program was told that its memory
    is free, so it is when the driver speaks again."""
    faults = {"GPUSHARE_SIM_FAULTS": "fail cuCtxPushCurrent times=0 result=999 from=now until=well"}
    lines = [
        *LINES,
        "import os",
        "s, a = stream_create(), alloc(20 * MIB)",
        "call('cuStreamBeginCapture_v2', c_void_p(s), 2)",
        "answer = free(a)",
        NOW,
        "call('cuStreamEndCapture', c_void_p(s), byref(c_uint64()))",
        "alloc(4 * MIB)",
        "before = sums()",
        NOW.replace("now", "well"),
        "alloc(4 * MIB)",
        "print(answer, before, sums())",
    ]
    assert backed.run(*lines, **faults) == ["0 (12, 0) (4, 0)"]
