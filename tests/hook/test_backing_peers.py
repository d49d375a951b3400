"""Peer access to memory that can be moved, on two simulated devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

ILLEGAL_ADDRESS = 700


@pytest.fixture
def pair(environment: dict[str, str], tmp_path: Path) -> Session:
    """A process with memory on device 0, and a context on device 1 that is current."""
    machine = SimulatedMachine(tmp_path / "machine", devices=2)
    of_sim = {name: machine.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


SET_UP = (
    "def fill(address, value):",
    "    result = launch('fill', 0, c_uint64(address), c_uint(value), c_uint64(1024))",
    "    return result or call('cuCtxSynchronize')",
    "def seen(address):",
    "    call('cuCtxSetCurrent', c_void_p(CONTEXT))",
    "    values = set(read(address, 4096)[::4])",
    "    call('cuCtxSetCurrent', c_void_p(OTHER))",
    "    return values",
    "def enable(): return call('cuCtxEnablePeerAccess', c_void_p(CONTEXT), 0)",
    "def disable(): return call('cuCtxDisablePeerAccess', c_void_p(CONTEXT))",
    "a = alloc(140 * MIB)",
    "OTHER = opened(1)",
)


@pytest.mark.promise(
    "backing-39",
    "Peer access holds for present and future memory, and after a restore",
)
def test_a_peer_reaches_what_is_there_and_what_comes(pair: Session) -> None:
    """Memory from before and after the access was enabled, large and small."""
    lines = [
        *("print(attribute(16, a), enable(), attribute(16, a))", "print(fill(a, 7), seen(a))"),
        *("call('cuCtxSetCurrent', c_void_p(CONTEXT))", "b, c = alloc(4 * MIB), alloc(8192)"),
        "call('cuCtxSetCurrent', c_void_p(OTHER))",
        "print(fill(b, 8), seen(b), fill(c, 9), seen(c), enable() != 0)",
    ]
    assert pair.run(*SET_UP, *lines) == ["0 0 3", "0 {7}", "0 {8} 0 {9} True"]


@pytest.mark.promise("backing-39")
def test_a_peer_reaches_it_after_a_restore(pair: Session) -> None:
    """Enabled before the park, or while it was parked."""
    lines = [
        *("print(enable(), fill(a, 7))", "call('cuCtxSetCurrent', c_void_p(CONTEXT))"),
        *("print(park(), restore())", "call('cuCtxSetCurrent', c_void_p(OTHER))"),
        *("print(fill(a, 8), seen(a))", "call('cuCtxSetCurrent', c_void_p(CONTEXT))"),
        *("park()", "call('cuCtxSetCurrent', c_void_p(OTHER))", "print(disable(), enable())"),
        *("call('cuCtxSetCurrent', c_void_p(CONTEXT))", "restore()"),
        *("call('cuCtxSetCurrent', c_void_p(OTHER))", "print(fill(a, 9), seen(a))"),
    ]
    assert pair.run(*SET_UP, *lines) == ["0 0", "3 3", "0 {8}", "0 0", "0 {9}"]


@pytest.mark.promise("backing-39")
@pytest.mark.parametrize("before", ["", "enable(), disable()"])
def test_without_peer_access_it_is_a_fault(pair: Session, before: str) -> None:
    """Not enabled, or disabled again: the launch faults, as on a plain allocation."""
    lines = [before, "print(fill(a, 7))"]
    assert pair.run(*SET_UP, *lines) == [str(ILLEGAL_ADDRESS)]
    assert pair.run(*SET_UP, *lines, FAKE_SWAP="0") == [str(ILLEGAL_ADDRESS)]


@pytest.mark.promise("backing-39")
def test_the_end_of_a_context_ends_its_access(pair: Session) -> None:
    """Access that a context had enabled is not given to what is allocated after it has gone."""
    lines = [
        "print(enable(), call('cuDevicePrimaryCtxReset_v2', 1))",
        "call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "b = alloc(4 * MIB)",
        "OTHER = opened(1)",
        "print(attribute(16, b), fill(b, 7))",
    ]
    assert pair.run(*SET_UP, *lines) == ["0 0", f"0 {ILLEGAL_ADDRESS}"]


COPIES = (
    "class Flat(ctypes.Structure):",
    "    _fields_ = [(end + field, kind) for end in 'sd' for field, kind in (('x', c_size_t),",
    "        ('y', c_size_t), ('type', c_uint), ('host', c_void_p), ('device', c_uint64),",
    "        ('array', c_void_p), ('pitch', c_size_t))]",
    "    _fields_ += [('width', c_size_t), ('height', c_size_t)]",
    "class Box(ctypes.Structure):",
    "    _fields_ = [(end + field, kind) for end in 'sd' for field, kind in (('x', c_size_t),",
    "        ('y', c_size_t), ('z', c_size_t), ('lod', c_size_t), ('type', c_uint),",
    "        ('host', c_void_p), ('device', c_uint64), ('array', c_void_p),",
    "        ('reserved', c_void_p), ('pitch', c_size_t), ('rows', c_size_t))]",
    "    _fields_ += [('width', c_size_t), ('height', c_size_t), ('depth', c_size_t)]",
    "b = alloc(20 * MIB)",
    "host = ctypes.create_string_buffer(4096)",
    "HOST = ctypes.addressof(host)",
    "def reset():",
    "    for context, address, value in ((CONTEXT, a, 7), (OTHER, b, 8)):",
    "        call('cuCtxSetCurrent', c_void_p(context))",
    "        assert call('cuMemsetD8_v2', c_uint64(address), value, c_size_t(4096)) == 0",
    "        call('cuCtxSynchronize')",
    "    ctypes.memset(host, 9, 4096)",
    "def line(name, to, source, *stream):",
    "    result = call(name, c_uint64(to), c_uint64(source), c_size_t(4096), *stream)",
    "    return result or call('cuCtxSynchronize')",
    "def shape(name, kind, to, source, type, *stream):",
    "    s = kind(stype=type, dtype=type, sdevice=source, ddevice=to, spitch=64, dpitch=64,",
    "             width=64, height=64, **({'depth': 1} if kind is Box else {}))",
    "    return call(name, byref(s), *stream) or call('cuCtxSynchronize')",
    "def all_are(data, value): return set(data) == {value}",
)


@pytest.mark.promise(
    "backing-40",
    "Copies between devices, and between the host and another device, need no peer access, as for "
    "plain allocations",
)
@pytest.mark.parametrize("variant", ["", "_pt"])
@pytest.mark.parametrize("current", ["CONTEXT", "OTHER"])
def test_copies_between_devices_need_no_peer_access(
    pair: Session, current: str, variant: str
) -> None:
    """Each copy that a plain allocation allows in the context of any device: between the devices,
    from and to the host, in one, two and three dimensions, in a stream or not."""
    ptds, ptsz = (variant + "ds", variant + "sz") if variant else ("", "")
    lines = [
        "def done(result, address, value):",
        "    context = CONTEXT if address == a else OTHER",
        "    call('cuCtxSetCurrent', c_void_p(context))",
        "    print(result, all_are(host.raw if address == HOST else read(address, 4096), value))",
        f"    reset(); call('cuCtxSetCurrent', c_void_p({current}))",
        f"reset(); call('cuCtxSetCurrent', c_void_p({current}))",
        "s = c_void_p(stream_create())",
    ]
    for name in ("cuMemcpy" + ptds, "cuMemcpyDtoD_v2" + ptds):
        lines += [f"done(line('{name}', a, b), a, 8)", f"done(line('{name}', b, a), b, 7)"]
    for name in ("cuMemcpyAsync" + ptsz, "cuMemcpyDtoDAsync_v2" + ptsz):
        lines += [f"done(line('{name}', a, b, s), a, 8)", f"done(line('{name}', b, a, None), b, 7)"]
    other = "a" if current == "OTHER" else "b"
    value = 7 if other == "a" else 8
    for name in ("cuMemcpyHtoD_v2" + ptds, "cuMemcpy" + ptds):
        lines += [f"done(line('{name}', {other}, HOST), {other}, 9)"]
    for name in ("cuMemcpyDtoH_v2" + ptds, "cuMemcpy" + ptds):
        lines += [f"done(line('{name}', HOST, {other}), HOST, {value})"]
    lines += [
        f"done(line('cuMemcpyHtoDAsync_v2{ptsz}', {other}, HOST, s), {other}, 9)",
        f"done(line('cuMemcpyDtoHAsync_v2{ptsz}', HOST, {other}, s), HOST, {value})",
    ]
    for unified in (2, 4):
        for name in ("cuMemcpy2D_v2" + ptds, "cuMemcpy2DUnaligned_v2" + ptds):
            lines += [f"done(shape('{name}', Flat, a, b, {unified}), a, 8)"]
        lines += [
            f"done(shape('cuMemcpy2DAsync_v2{ptsz}', Flat, b, a, {unified}, s), b, 7)",
            f"done(shape('cuMemcpy3D_v2{ptds}', Box, b, a, {unified}), b, 7)",
            f"done(shape('cuMemcpy3DAsync_v2{ptsz}', Box, a, b, {unified}, s), a, 8)",
        ]
    answers = pair.run(*SET_UP, *COPIES, *lines)
    assert answers == ["0 True"] * 24
    assert pair.run(*SET_UP, *COPIES, *lines, FAKE_SWAP="0") == answers


def test_what_is_wrong_with_a_copy_stays_wrong(pair: Session) -> None:
    """A copy that leaves its allocation is refused in any context."""
    lines = [
        "reset()",
        "print(line('cuMemcpy', a + 140 * MIB - 8, b))",
        "print(shape('cuMemcpy2D_v2', Flat, a + 140 * MIB - 8, b, 2))",
        "print(call('cuMemcpy2D_v2', None), call('cuMemcpy3D_v2', None))",
        "print(all_are(read(b, 4096), 8))",
    ]
    assert pair.run(*SET_UP, *COPIES, *lines) == ["1", "1", "1 1", "True"]
