"""Memory that was given to another process, asked for by its handle while it is away or has just
come back: what the exporter answers, packet by packet, and for what it asks its scheduler."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import TurnRequested
from tests.hook.runtime.mapping_program import MappingProgram, start_mapping_program
from tests.hook.runtime.memory_shell import MIB
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import WAIT_S_MAX

SIZE = 4 * MIB
SERVED, UNKNOWN, WAITS = 0, 1, 2
BYE = b"gpipbye1"


@pytest.fixture
def program(tmp_path: Path, scheduler: FakeScheduler) -> Iterator[MappingProgram]:
    """It has the turn, and `a` with b"kept" in it, whose handle nobody has opened."""
    sim = SimulatedMachine(tmp_path / "sim")
    process = start_mapping_program(tmp_path, scheduler, sim)
    program = MappingProgram(process, scheduler, Files(sim))
    program.say(f"a = alloc({SIZE})")
    program.memory.grant()
    program.result()
    assert program.run("write(a, b'kept')") == "0"
    program.run("handle = share(a)")
    fixed(program, SIZE)
    yield program
    process.end()


def fixed(program: MappingProgram, size: int) -> None:
    program.client.expect_memory(lambda report: report.bytes_fixed == size)


class Importer:
    """As the hook of another process: this one, which lives on."""

    def __init__(self, program: MappingProgram) -> None:
        handle = bytes.fromhex(program.run("handle").strip("'"))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S_MAX)
        self.socket.connect(f"\0gpushare-memory-{int.from_bytes(handle[8:16], 'little'):016x}")
        self.socket.send(b"gpipask1" + handle[32:40] + handle[16:32])

    def hears(self) -> tuple[int, int]:
        """The status of the next packet, and how many descriptors came with it."""
        packet, fds, _, _ = socket.recv_fds(self.socket, 8192, 253)
        for fd in fds:
            os.close(fd)
        return int.from_bytes(packet[8:12], "little"), len(fds)


@pytest.mark.promise("backing-18")
def test_what_has_a_host_copy_is_not_given(program: MappingProgram) -> None:
    """It came back ahead of the turn, and could leave again without a copy: what an importer writes
    would be lost. So the turn is asked for first."""
    fixed(program, 0)
    program.memory.take_turn()
    program.memory.park_to(0)
    program.memory.budget(2 * SIZE)
    program.client.expect_memory(lambda report: report.bytes_parked == 0)
    importer = Importer(program)
    assert importer.hears() == (WAITS, 0)
    program.memory.grant()
    while (heard := importer.hears()) == (WAITS, 0):
        pass
    assert heard == (SERVED, 1)
    fixed(program, SIZE)


@pytest.mark.promise("backing-18")
def test_what_is_on_the_device_is_given_at_once(program: MappingProgram) -> None:
    """Without the turn too, and it stays from then on, until the importer says its word."""
    fixed(program, 0)
    program.memory.take_turn()
    importer = Importer(program)
    assert importer.hears() == (SERVED, 1)
    fixed(program, SIZE)
    assert program.memory.limit(0).bytes_parked == 0
    importer.socket.send(b"nonsense" * 3)
    importer.socket.send(BYE)
    program.client.expect_memory(lambda report: report.bytes_parked == SIZE)
    assert program.client.count(TurnRequested) == 1


@pytest.mark.promise("backing-19")
def test_a_connection_that_ends_without_a_word(program: MappingProgram) -> None:
    """Its process lives, so that it may have the memory."""
    importer = Importer(program)
    assert importer.hears() == (SERVED, 1)
    importer.socket.close()
    other = Importer(program)
    assert other.hears() == (SERVED, 1)
    other.socket.send(BYE)
    program.run("import time; time.sleep(2)")
    program.memory.take_turn()
    report = program.memory.limit(0)
    assert (report.bytes_fixed, report.bytes_parked) == (SIZE, 0)


@pytest.mark.promise("backing-18")
def test_who_waits_and_goes_is_forgotten(program: MappingProgram) -> None:
    """Memory that comes back for it moves again, and the next one is served."""
    fixed(program, 0)
    program.memory.take_turn()
    program.memory.park_to(0)
    importer = Importer(program)
    assert importer.hears() == (WAITS, 0)
    program.client.expect(TurnRequested)
    importer.socket.close()
    program.allow_all()
    program.client.expect_memory(lambda report: report.bytes_parked == 0)
    program.memory.take_turn()
    assert program.memory.park_to(0).bytes_parked == SIZE
    importer = Importer(program)
    assert importer.hears() == (WAITS, 0)
    while program.client.count(TurnRequested) < 3:  # the wait for the first one may go on
        program.client.read_more(time.monotonic() + WAIT_S_MAX)
    program.allow_all()
    while (heard := importer.hears()) == (WAITS, 0):
        pass
    assert heard == (SERVED, 1)


@pytest.mark.promise("backing-18")
def test_an_interrupt_of_the_owner_ends_nobody_elses_wait(program: MappingProgram) -> None:
    """It cancels all waits of its process; this one is begun anew."""
    fixed(program, 0)
    program.memory.take_turn()
    program.memory.park_to(0)
    importer = Importer(program)
    assert importer.hears() == (WAITS, 0)
    program.client.expect(TurnRequested)
    program.cancel_waits()
    program.memory.grant()
    while (heard := importer.hears()) == (WAITS, 0):
        pass
    assert heard == (SERVED, 1)


def test_memory_that_is_lost_is_refused(program: MappingProgram) -> None:
    """Its context has ended while it was away: nobody waits for it."""
    fixed(program, 0)
    program.memory.take_turn()
    program.memory.park_to(0)
    assert program.run("call('cuDevicePrimaryCtxReset_v2', 0)") == "0"
    assert Importer(program).hears() == (UNKNOWN, 0)
