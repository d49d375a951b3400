"""What a reading of the merged hook has found: memory that becomes one allocation, contexts that
end, captures and the end of the process meet each other here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped
from tests.hook.runtime.mapping_program import MappingProgram, Opens
from tests.hook.runtime.memory_shell import MIB
from tests.support.compiled import compiled_library
from tests.support.paths import HOOK_LIBRARY
from tests.support.sim import SimulatedMachine, driver_with
from tests.support.waits import wait_until

CANCELLED = 800
MOVER = "thread=gpushare-mem"
PART = 64 * MIB
TAKEN_DOWN = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((destructor)) static void take_down(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/down", getenv("GPUSHARE_SIM_DIR"));
    fclose(fopen(path, "w"));
    usleep(300000);
}
"""
"""A driver that takes its time to go, when the handlers of exit have run."""


WAKES_LATE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic long waited_for; /* by a thread of the program: the gate's word */

static int is_there(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("GPUSHARE_SIM_DIR"), name);
    return access(path, F_OK) == 0;
}

long syscall(long number, ...) {
    static long (*real)(long, ...);
    char name[16] = "";
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    prctl(PR_GET_NAME, name);
    if (number == SYS_futex && a[1] == FUTEX_WAIT_PRIVATE && strncmp(name, "gpushare", 8) != 0)
        waited_for = a[0];
    const long answer = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number != SYS_futex || a[1] != FUTEX_WAKE_PRIVATE || a[0] != waited_for) return answer;
    while (strcmp(name, "gpushare") == 0 && is_there("late") && !is_there("on"))
        usleep(1000);
    return answer;
}
"""
"""The agent does nothing for a while after it has woken those who wait for the gate."""


def made(program: MappingProgram, parts: int) -> int:
    """Memory of so many parts, and its size."""
    size = parts * PART - 30 * MIB
    program.make(size, "handle_types=1")
    assert program.run(f"[write(at + n * {PART}, numbers(8, n)) for n in range({parts})]")
    return size


def is_whole(program: MappingProgram, parts: int) -> bool:
    looks = f"all(read(at + n * {PART}, 8) == numbers(8, n) for n in range({parts}))"
    return program.run(looks) == "True"


def uses(program: MappingProgram) -> None:
    """With a turn of its own."""
    program.say(f"launch('fill', 0, c_uint64(at + {MIB}), c_uint(1), c_uint64(4))")
    program.memory.grant()
    assert program.result() == "0"


@pytest.mark.promise(
    "backing-54",
    "Memory is made one allocation only while the gate is shut, also where it is asked for in the "
    "moment in which the gate opens",
)
def test_an_export_in_the_moment_in_which_the_gate_opens(opens: Opens, tmp_path: Path) -> None:
    """What another thread writes in that moment is not lost."""
    late = compiled_library(WAKES_LATE, "-ldl")
    holds = f"hold cuMemcpyHtoDAsync {MOVER} until=back; hold cuMemcpyDtoHAsync {MOVER} from=late"
    program = opens(f"{holds} until=on nth=3", env={"LD_PRELOAD": f"{late}:{HOOK_LIBRARY}"})
    made(program, 3)
    program.run(f"small = alloc({2 * MIB})", thread=2)
    program.park()
    program.say("write(at, b'early')", thread=3)
    program.memory.grant()
    program.files.wait_for_held("back")
    program.files.make("late")
    program.files.make("back")
    assert program.result(thread=3) == "0"
    program.say("export(handle) > 0")
    program.wait_until_it_waits(1)
    assert program.run("free(small)", thread=2) == "0"
    assert program.client.hears_none(TurnDropped, for_s=0.5)  # time for the first copies out
    assert program.run("write(at, b'later')", thread=3) == "0"
    program.files.make("on")
    assert program.result() == "True"
    assert program.run("read(at, 5)") == "b'later'"
    assert program.client.count(TurnDropped) == 1


@pytest.mark.promise(
    "backing-55",
    "An export that is interrupted, or loses its turn, while its memory is made one allocation "
    "leaves that as it was",
)
@pytest.mark.parametrize("parts", [3, pytest.param(7, marks=pytest.mark.full)])
def test_an_export_that_is_interrupted_in_the_middle(opens: Opens, parts: int) -> None:
    """Nobody wants it any more, so that it moves on. Not all copies out have begun, or all."""
    program = opens(f"hold cuEventQuery {MOVER} until=copied nth=1")
    size = made(program, parts)
    program.say("export(handle)")
    program.files.wait_for_held("copied")
    program.cancel_waits()
    assert program.result() == f"-{CANCELLED}"
    program.client.expect(TurnDropped)
    program.files.make("copied")
    program.begin_cell()
    uses(program)
    program.memory.take_turn()
    assert program.memory.park_to(0).bytes_parked == size
    uses(program)
    assert is_whole(program, parts)
    assert program.process.log_lines("whole: ")[0].count("not made") == 1


@pytest.mark.promise("backing-55")
def test_a_recall_in_the_middle(opens: Opens) -> None:
    """The memory leaves with the turn, and is made one allocation with the next."""
    program = opens(f"hold cuEventQuery {MOVER} until=copied nth=1")
    size = made(program, 3)
    program.say("export(handle) > 0")
    program.files.wait_for_held("copied")
    program.memory.take_turn()
    program.files.make("copied")
    assert program.memory.park_to(0).bytes_parked == size
    program.allow_all()
    assert program.result() == "True"
    assert is_whole(program, 3)
    program.client.expect_memory(lambda report: report.bytes_fixed == size)


@pytest.mark.promise(
    "park-65",
    "Once the handlers of exit have run no thread of ours calls the driver, also in the middle of "
    "making memory one allocation",
)
@pytest.mark.parametrize("way", ["DtoH", "HtoD"])
def test_the_process_ends_in_the_middle(
    opens: Opens, sim: SimulatedMachine, tmp_path: Path, way: str
) -> None:
    """While its contents are copied out, or in again."""
    faults = f"stall cuMemcpy{way}Async {MOVER} ms=1; stall cuEventQuery {MOVER} from=down ms=1"
    path = driver_with(tmp_path / "driver", TAKEN_DOWN)
    program = opens(faults, env={"LD_LIBRARY_PATH": path})
    made(program, 7)
    program.say("export(handle)")
    wait_until(lambda: len(sim.happened()) == 1)
    assert program.process.finish() == 0
    assert (sim.directory / "down").exists()
    assert sim.happened() == [f"stall cuMemcpy{way}Async"]


@pytest.mark.promise(
    "park-66",
    "A context that is about to end is left alone, also by what makes host memory ready",
)
def test_host_memory_is_made_ready_in_no_context_that_ends(
    opens: Opens, sim: SimulatedMachine
) -> None:
    """What is registered there would end with it, and its handle may be given out again."""
    ends = "hold cuDevicePrimaryCtxReset until=go"
    program = opens(f"{ends}; stall cuMemHostRegister {MOVER} from=go.held until=go ms=1")
    program.say(f"alloc({100 * MIB}) > 0")
    program.memory.grant()
    assert program.result() == "True"
    program.say("call('cuDevicePrimaryCtxReset_v2', 0)")
    program.files.wait_for_held("go")
    program.memory.budget(1 << 40, hint_bytes=100 * MIB)
    assert program.client.hears_none(TurnDropped, for_s=0.5)
    program.files.make("go")
    assert program.result() == "0"
    assert sim.happened() == ["hold cuDevicePrimaryCtxReset"]


@pytest.mark.promise(
    "hook-52",
    "A launch that looks at its window leaves a capture alone that another thread begins meanwhile",
)
def test_a_capture_begins_beside_a_look_at_the_window(opens: Opens) -> None:
    """Also one that allows no unsafe call of any thread."""
    main_thread = Path(sys.executable).name[:15]
    program = opens(f"hold cuEventQuery thread={main_thread} from=on until=go")
    program.say(f"stream = stream_create(); alloc({MIB})")
    program.memory.grant()
    program.result()
    program.run("captured = stream_create()", thread=2)
    program.files.make("on")
    spin = "launch('spin', stream, c_uint64(1000))"
    program.say(f"any({spin} for _ in range(5000))")
    program.files.wait_for_held("go")
    begins = "call('cuStreamBeginCapture_v2', c_void_p(captured), 0)"
    assert program.run(begins, thread=2) == "0"
    program.files.make("go")
    assert program.result() == "False"
    program.run("graph = c_void_p()", thread=2)
    ends = "call('cuStreamEndCapture', c_void_p(captured), byref(graph))"
    assert program.run(ends, thread=2) == "0"
