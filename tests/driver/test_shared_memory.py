"""Mapped memory that several processes have: handles become file descriptors and handles again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import Gpu, alone, code, ok
from tests.driver.test_mapped_memory import Mapper, properties
from tests.support.paths import ROOT

POSIX = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
FABRIC = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC

IMPORTER = """
import os, sys
from cuda.bindings import driver as cuda
from tests.driver.harness import Gpu, driver_under_test, ok
from tests.driver.test_mapped_memory import Mapper
from tests.driver.test_shared_memory import POSIX
with driver_under_test():
    mapper = Mapper(Gpu())
    before, _ = ok(cuda.cuMemGetInfo())
    chunk = ok(cuda.cuMemImportFromShareableHandle(int(sys.argv[1]), POSIX))
    os.close(int(sys.argv[1]))
    address = mapper.reserve()
    mapper.map(address, chunk)
    mapper.grant(address)
    ok(cuda.cuMemRelease(chunk))
    after, _ = ok(cuda.cuMemGetInfo())
    print(before - after, flush=True)
    for line in sys.stdin:
        print(*set(mapper.gpu.download(address, mapper.words).tolist()), flush=True)
        mapper.gpu.launch("fill", address, int(line), mapper.words)
        ok(cuda.cuCtxSynchronize())
        print("written", flush=True)
"""


EXPORTER = """
import signal, socket, sys
from tests.driver.harness import Gpu, driver_under_test, ok
from tests.driver.test_shared_memory import Sharer, exported
with driver_under_test():
    sharer = Sharer(Gpu())
    address, chunk = sharer.mapped(61)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        socket.send_fds(channel, [b"x"], [exported(chunk)])
        signal.pause()
"""


class Sharer(Mapper):
    """Chunks that may be given to other processes."""

    def create(self) -> object:
        shareable = properties(self.gpu)
        shareable.requestedHandleTypes = POSIX
        return ok(cuda.cuMemCreate(self.granule, shareable, 0))

    def mapped(self, value: int) -> tuple[int, object]:
        address, chunk = self.reserve(), self.create()
        self.map(address, chunk)
        self.grant(address)
        self.gpu.launch("fill", address, value, self.words)
        ok(cuda.cuCtxSynchronize())
        return address, chunk

    def value(self, address: int) -> set[int]:
        return set(self.gpu.download(address, self.words).tolist())

    def give_back(self, address: int) -> None:
        self.unmap(address)
        self.free(address)


@contextmanager
def importer(fd: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that has mapped the memory of this descriptor, and how many bytes less are
    free since."""
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTER, str(fd)],
        cwd=ROOT,
        pass_fds=(fd,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        taken_bytes = process.stdout.readline()
        assert taken_bytes, "It has ended before. Its error is above."
        yield process, int(taken_bytes)
        process.communicate()


def told(process: subprocess.Popen[str], value: int) -> str:
    """What the other process saw before it wrote this value."""
    assert process.stdin and process.stdout
    process.stdin.write(f"{value}\n")
    process.stdin.flush()
    seen = process.stdout.readline().strip()
    assert process.stdout.readline() == "written\n"
    return seen


@contextmanager
def exporter() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Another process, which has created memory, and the descriptor that it has sent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = [sys.executable, "-c", EXPORTER, str(theirs.fileno())]
        with subprocess.Popen(program, cwd=ROOT, pass_fds=(theirs.fileno(),)) as process:
            theirs.close()
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            yield process, fds[0]
            process.kill()


def exported(chunk: object) -> int:
    return int(ok(cuda.cuMemExportToShareableHandle(chunk, POSIX, 0)))


@pytest.mark.promise("backing-35")
def test_two_processes_have_the_same_bytes(gpu: Gpu) -> None:
    """What either writes the other reads, after the descriptor is closed on both sides too."""
    sharer = Sharer(gpu)
    address, chunk = sharer.mapped(31)
    fd = exported(chunk)
    with importer(fd) as (other, _):
        os.close(fd)
        assert told(other, 32) == "31"
        assert sharer.value(address) == {32}
        gpu.launch("fill", address, 33, sharer.words)
        ok(cuda.cuCtxSynchronize())
        assert told(other, 34) == "33"
    assert sharer.value(address) == {34}
    sharer.give_back(address)
    ok(cuda.cuMemRelease(chunk))


def test_an_import_takes_no_more_of_the_device(gpu: Gpu) -> None:
    """The memory is there once, whoever has mapped it."""
    sharer = Sharer(gpu)
    address, chunk = sharer.mapped(35)
    fd = exported(chunk)
    with importer(fd) as (_, taken_bytes):
        os.close(fd)
        assert taken_bytes < sharer.granule
    sharer.give_back(address)
    ok(cuda.cuMemRelease(chunk))


def test_it_lives_as_long_as_anybody_has_it(gpu: Gpu) -> None:
    """The importer keeps the memory when the exporter has given it back."""
    sharer = Sharer(gpu)
    address, chunk = sharer.mapped(41)
    fd = exported(chunk)
    with importer(fd) as (other, _):
        os.close(fd)
        sharer.give_back(address)
        ok(cuda.cuMemRelease(chunk))
        assert told(other, 42) == "41"
        assert told(other, 43) == "42"


@pytest.mark.promise("backing-35")
@alone
def test_the_importer_outlives_the_exporter(gpu: Gpu) -> None:
    """Documented: memory is freed with its last handle and mapping, in whatever process. The death
    of whoever created it takes nothing, from work that runs neither."""
    sharer = Sharer(gpu)
    with exporter() as (other, fd):
        chunk = ok(cuda.cuMemImportFromShareableHandle(fd, POSIX))
        os.close(fd)
        address = sharer.reserve()
        sharer.map(address, chunk)
        sharer.grant(address)
        gpu.launch("spin", 200_000_000)
        gpu.launch("fill", address, 62, sharer.words // 2)
        other.kill()
        other.wait()
    ok(cuda.cuCtxSynchronize())
    assert sharer.value(address) == {61, 62}
    ok(cuda.cuMemRelease(chunk))
    sharer.give_back(address)


@alone
def test_what_an_importer_has_is_not_free(gpu: Gpu) -> None:
    """Documented: the device has its memory back when the last process gives it up."""
    sharer = Sharer(gpu)
    with exporter() as (other, fd):
        chunk = ok(cuda.cuMemImportFromShareableHandle(fd, POSIX))
        os.close(fd)
        other.kill()
        other.wait()
    held, _ = ok(cuda.cuMemGetInfo())
    ok(cuda.cuMemRelease(chunk))
    assert ok(cuda.cuMemGetInfo())[0] - held == sharer.granule


def test_an_import_into_the_same_process(gpu: Gpu) -> None:
    """A descriptor can be imported where it was made; both mappings are the same memory."""
    sharer = Sharer(gpu)
    address, chunk = sharer.mapped(51)
    fd = exported(chunk)
    again = ok(cuda.cuMemImportFromShareableHandle(fd, POSIX))
    os.close(fd)
    second = sharer.reserve()
    sharer.map(second, again)
    sharer.grant(second)
    assert sharer.value(second) == {51}
    gpu.launch("fill", second, 52, sharer.words)
    assert sharer.value(address) == {52}
    for mapped, handle in ((second, again), (address, chunk)):
        sharer.give_back(mapped)
        ok(cuda.cuMemRelease(handle))


def test_an_import_is_not_passed_on(gpu: Gpu) -> None:
    """Measured on an H200 (driver 580.159.04): an import has no handle types of its own."""
    sharer = Sharer(gpu)
    address, chunk = sharer.mapped(50)
    fd = exported(chunk)
    again = ok(cuda.cuMemImportFromShareableHandle(fd, POSIX))
    os.close(fd)
    assert int(ok(cuda.cuMemGetAllocationPropertiesFromHandle(again)).requestedHandleTypes) == 0
    refused = cuda.cuMemExportToShareableHandle(again, POSIX, 0)
    assert code(refused) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemRelease(again))
    sharer.give_back(address)
    ok(cuda.cuMemRelease(chunk))


def test_what_was_not_made_for_it_is_not_exported(gpu: Gpu) -> None:
    """The handle type has to be asked for at creation, and no other one can be had."""
    mapper, sharer = Mapper(gpu), Sharer(gpu)
    plain, chunk = mapper.create(), sharer.create()
    refusals = (
        cuda.cuMemExportToShareableHandle(plain, POSIX, 0),
        cuda.cuMemExportToShareableHandle(chunk, FABRIC, 0),
        cuda.cuMemExportToShareableHandle(chunk, POSIX, 1),
    )
    assert R.CUDA_SUCCESS not in [code(refusal) for refusal in refusals]
    fds = [exported(chunk), exported(chunk)]
    assert fds[0] != fds[1]
    for fd in fds:
        os.close(fd)
    for handle in (plain, chunk):
        ok(cuda.cuMemRelease(handle))


@alone
def test_a_descriptor_of_something_else_is_not_imported(gpu: Gpu) -> None:
    """Files and pipes are no memory of a device."""
    reader, writer = os.pipe()
    with Path(__file__).open() as file:
        for fd in (reader, writer, file.fileno()):
            answer = cuda.cuMemImportFromShareableHandle(fd, POSIX)
            assert code(answer) is not R.CUDA_SUCCESS
