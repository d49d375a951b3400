"""Events that the hook records behind launches, and what other threads do meanwhile."""

from __future__ import annotations

import pytest

from tests.hook.runtime.mapping_program import Opens
from tests.hook.runtime.memory_shell import MIB

LAUNCHES = 100


@pytest.mark.promise(
    "hook-15",
)
def test_nobody_launches_after_who_asks_about_another_stream(opens: Opens) -> None:
    """A query of a stream whose queue is full takes as long as the driver needs for the queue, and
    the program may go on with it only after its next launch in another stream."""
    program = opens("hold cuStreamQuery from=full until=go")
    program.make()
    program.run(f"small = alloc({2 * MIB})", thread=2)
    for thread in (2, 3):
        program.run(f"stream_{thread} = stream_create()", thread=thread)
    launch = "launch('fill', {stream}, c_uint64(at + MIB), c_uint(1), c_uint64(4))"
    for _ in range(LAUNCHES):
        assert program.run(launch.format(stream="stream_3"), thread=3) == "0"
    assert program.run(launch.format(stream="stream_2"), thread=2) == "0"
    program.files.make("full")
    program.say("free(small)", thread=2)
    program.files.wait_for_held("go")
    for _ in range(LAUNCHES):
        assert program.run(launch.format(stream="stream_3"), thread=3) == "0"
    program.files.make("go")
    assert program.result(thread=2) == "0"
