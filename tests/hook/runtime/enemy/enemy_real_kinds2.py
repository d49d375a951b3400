from __future__ import annotations
import sys, time, signal
import pytest
from jupyter_gpushare.protocol.messages import *
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.memory_shell import MIB
from tests.support.fake_scheduler import UNLIMITED
from tests.support.paths import HOOK_LIBRARY
from tests.support.sim import GIB, SimulatedMachine


class Repl:
    def __init__(self, sim, scheduler, tmp_path, env=None):
        self.log = tmp_path / "repl.log"
        environment = sim.env(scheduler.env(hook=HOOK_LIBRARY, log=self.log))
        environment = {**environment, "PYTHONPATH": ".", **(env or {})}
        self.process = GpuProcess([sys.executable, "./enemy_repl2.py"], environment, self.log)

    def say(self, code, n=1):
        self.process.say(f"{n} {code}")

    def result(self, n=1, within_s=15):
        return self.process.expect(f"{n} = ", within_s=within_s).split(" = ", 1)[1]

    def run(self, code, n=1):
        self.say(code, n)
        return self.result(n)


@pytest.fixture
def sim(tmp_path):
    return SimulatedMachine(tmp_path / "sim", devices=2, bytes_per_device=GIB)


@pytest.fixture
def repl(sim, scheduler, tmp_path):
    made = []
    def make(env=None):
        made.append(Repl(sim, scheduler, tmp_path, env))
        return made[-1]
    yield make
    for one in made:
        one.process.end()
        print(one.process.log.read_text()[-6000:] if one.process.log.exists() else "no log")


def welcome(r, scheduler, **more):
    r.say("from tests.hook.mapping_session import *")
    client = scheduler.accept()
    client.welcome(**{"memory_mode": MemoryMode.SWAP, "reclaim_ms": 300, **more})
    device = client.expect(DeviceOpened).device
    assert r.result() == "None"
    return client, device


def grant(client, device, budget=UNLIMITED):
    client.expect(TurnRequested)
    client.budget(device, budget)
    client.grant()


def take(client):
    client.recall()
    client.expect(TurnDropped)


def park(client, device, budget=0):
    serial = client.budget(device, budget)
    return client.expect_memory(lambda m: m.budget_serial == serial and m.bytes_allocated - m.bytes_parked <= budget)


def start_parked(r, scheduler, size="4*MIB", **more):
    client, device = welcome(r, scheduler, **more)
    r.say(f"h, at = mapped({size})")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("write(at, b'kept')") == "0"
    assert r.run("call('cuCtxSynchronize')") == "0"
    take(client)
    park(client, device)
    return client, device


def test_basic(repl, scheduler):
    r = repl()
    client, device = start_parked(r, scheduler)
    r.say("read(at, 4)")
    grant(client, device)
    assert r.result() == "b'kept'"


def test_context_that_ends_after_a_cancelled_wait(repl, scheduler):
    """S3: the wait of a reset for the turn is cancelled: the context ends with parked memory."""
    r = repl()
    client, device = start_parked(r, scheduler)
    r.say("call('cuDevicePrimaryCtxReset_v2', 0)")
    client.expect(TurnRequested)
    r.say("__import__('ctypes').CDLL(None).gpushare_cancel_waits()", 2)
    print("cancel", r.result(2))
    print("reset", r.result())
    print(r.run("opened(0) > 0"))
    r.run("__import__('ctypes').CDLL(None).gpushare_cell_began()", 2)
    time.sleep(0.3)
    r.say("read(at, 4)")
    for _ in range(3):
        client.budget(device, UNLIMITED)
        client.grant()
        try:
            print(r.result(within_s=2)); break
        except TimeoutError:
            print("silent; last", client.received[-3:])
    else:
        pytest.fail("the gate never opens again")


def test_lost_wake_up(repl, scheduler, sim):
    """S1: budget 0 arrives while the only movable chunk is claimed for a change."""
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuMemUnmap nth=1 until=go"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("write(at, b'kept')") == "0"
    take(client)
    time.sleep(0.3)
    r.say("unmap(at, 4*MIB)")
    held = sim.directory / "go.held" if hasattr(sim, "directory") else None
    time.sleep(0.5)
    client.budget(device, 0)
    time.sleep(0.5)
    import os
    os.system(f"touch {sim.env()['GPUSHARE_SIM_DIR']}/go")
    assert r.result() == "0"
    client.expect_memory(lambda m: m.bytes_parked == 4 * MIB)


def test_no_context_at_all(repl, scheduler):
    r = repl()
    r.say("from tests.hook.memory_session import *")
    r.result()
    r.say("call('cuInit', 0)")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=300)
    print(r.result())
    r.run("exec(open('./tests/hook/mapping_session.py').read().replace('from tests.hook.backing_session import *','').replace('from tests.hook.backing_session import call, made',''))")
    r.run("from __future__ import annotations")
    print(r.run("h = create(2*MIB); at = reserve(2*MIB)"), r.run("(h, at)"))
    r.say("map_at(at, 2*MIB, h)")
    try:
        print(r.result(within_s=4))
    except TimeoutError:
        print("waits; heard:", client.received)
        client.expect(TurnRequested)
        client.grant()
        print("after a grant", r.result(within_s=4))
        pytest.fail("cuMemMap waits for a turn without any device open")


def test_jump_out_of_map_leaks(sim, scheduler, tmp_path, programs):
    import subprocess
    from tests.hook.runtime.process import HERE
    from tests.support.paths import SIM_LIBRARIES, BUILTINS_PTX
    subprocess.run(["cc", "-std=gnu11", "-g", "-pthread", "-isystem", str(programs._headers), "-I", str(HERE / "programs"),
        f'-DBUILTINS_PTX="{BUILTINS_PTX}"', "-o", "./jumps_map", "./jumps_map.c", f"-L{SIM_LIBRARIES}", "-l:libcuda.so.1", "-ldl"], check=True)
    p = GpuProcess(["./jumps_map"], sim.env(scheduler.env(hook=HOOK_LIBRARY, log=tmp_path / "log")), tmp_path / "log")
    try:
        client = scheduler.accept()
        client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=300)
        device = client.expect(DeviceOpened).device
        grant(client, device)
        p.expect("created 0")
        take(client)
        park(client, device)
        p.say("x")
        p.expect("mapping")
        client.expect(TurnRequested)
        p.signal(signal.SIGINT)
        p.expect("jumped")
        p.expect("released 0")
        client.expect_memory(lambda m: m.bytes_allocated == 0, ) if False else None
        time.sleep(1)
        serial = client.budget(device, 0)
        last = client.expect_memory(lambda m: m.budget_serial == serial)
        print("after the release:", last)
        assert last.bytes_allocated == 0
    finally:
        p.end()


def touch(sim, name):
    import pathlib
    (pathlib.Path(sim.env()["GPUSHARE_SIM_DIR"]) / name).touch()


def test_attribute_while_it_is_parked(repl, scheduler, sim):
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuPointerGetAttribute nth=1 until=go from=armed"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("attribute(2, at)") == "2"
    touch(sim, "armed")
    r.say("attribute(2, at)")
    time.sleep(0.5)
    take(client)
    park(client, device)
    touch(sim, "go")
    assert r.result() == "2"


def test_failed_current_context(repl, scheduler, sim):
    """S4: the current context has failed, the parked memory is another one's."""
    r = repl()
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB, handle_types=1)")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("write(at, b'kept')") == "0"
    r.run("second = opened(0) and made('cuCtxCreate_v2', c_uint(0), 0)")
    print("second", r.run("second"))
    print("current", r.run("call('cuCtxSetCurrent', c_void_p(second))"))
    print("fails", r.run("launch('assert_fail', 0)"), r.run("call('cuCtxSynchronize')"))
    client.expect(TurnDropped)
    print("parked", park(client, device))
    print("current", r.run("call('cuCtxSetCurrent', c_void_p(second))"))
    print("calls without the turn: export", r.run("export(h)"))
    r.run("b = reserve(4*MIB)")
    print("map", r.run("map_at(b, 4*MIB, h)"), "grant", r.run("grant(at, 4*MIB)"), "attribute", r.run("attribute(2, at)"))
    r.run("call('cuCtxSetCurrent', c_void_p(CONTEXT))")
    r.say("read(at, 4)")
    grant(client, device)
    assert r.result(within_s=6) == "b'kept'"


def test_two_devices_after_a_cancelled_end(repl, scheduler):
    r = repl()
    client, device = start_parked(r, scheduler)
    r.say("call('cuDevicePrimaryCtxRelease_v2', 0)")
    client.expect(TurnRequested)
    r.say("__import__('ctypes').CDLL(None).gpushare_cancel_waits()", 2)
    r.result(2)
    print("release", r.result())
    print(r.run("opened(1) > 0"))
    r.run("__import__('ctypes').CDLL(None).gpushare_cell_began()", 2)
    time.sleep(0.3)
    other = client.expect(DeviceOpened).device
    r.say("alloc(4*MIB)")
    client.expect(TurnRequested)
    client.budget(device, UNLIMITED); client.budget(other, UNLIMITED)
    client.grant()
    assert int(r.result(within_s=6)) > 0


def test_unmap_that_fails_in_the_middle(repl, scheduler):
    r = repl({"GPUSHARE_SIM_FAULTS": "fail cuMemUnmap nth=2 result=1"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(150*MIB)")
    grant(client, device)
    assert r.result() == "None"
    for e in (0, 64, 128): r.run(f"write(at + {e}*MIB, b'p%d' % {e})")
    print("unmap", r.run("unmap(at, 150*MIB)"))
    print("after", [r.run(f"write(at + {e}*MIB, b'q')") for e in (0, 64, 128)], r.run("address_range(at)"), r.run("access_at(at)"), r.run("access_at(at+64*MIB)"))
    print("again", r.run("unmap(at, 150*MIB)"), r.run("map_at(at, 150*MIB, h)"), r.run("grant(at, 150*MIB)"))
    print(r.run("[read(at + e*MIB, 4) for e in (0, 64, 128)]"))


def test_exit_while_it_unmaps_and_waits(repl, scheduler, sim):
    """A thread waits for a chunk that is leaving, when the process ends; exit handlers unmap."""
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuEventQuery until=go thread=gpushare-mem times=0", "PYTHONFAULTHANDLER": "1"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    take(client)
    client.budget(device, 0)
    time.sleep(0.5)
    r.say("print('waited', unmap(at, 4*MIB), release(h), unreserve(at, 4*MIB), flush=True)", 2)
    time.sleep(0.3)
    r.run("import atexit; atexit.register(lambda: print('atexit', unmap(at, 4*MIB), release(h), unreserve(at, 4*MIB), flush=True))")
    r.process.end_input()
    time.sleep(0.5)
    touch(sim, "go")
    code = r.process.wait(within_s=10)
    print("exit", code, r.process._unread.decode(), r.process.errors())
    assert code == 0


def test_mover_context_is_stale(repl, scheduler, sim):
    """S11: a context ends while memory is made that took it for its copies."""
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuMemCreate nth=1 until=go"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    time.sleep(0.3)
    print("second", r.run("second := made('cuCtxCreate_v2', c_uint(0), 0)", 2) if False else r.run("made('cuCtxCreate_v2', c_uint(0), 0)", 2))
    r.say("call('cuDevicePrimaryCtxRelease_v2', 0)", 2)
    time.sleep(0.5)
    touch(sim, "go")
    print("release", r.result(2), "mapped", r.result())
    r.say("write(at, b'kept')", 2)
    print("write", r.result(2))
    take(client)
    serial = client.budget(device, 0)
    try:
        m = client.expect_memory(lambda m: m.budget_serial == serial and m.bytes_parked > 0)
        print(m)
    except TimeoutError as e:
        print("never parked", str(e)[-400:])
        pytest.fail("stale context")


def test_exit_with_a_thread_that_waits(repl, scheduler, sim):
    """As above, with one unmap alone."""
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuEventQuery until=go thread=gpushare-mem times=0", "PYTHONFAULTHANDLER": "1"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    take(client)
    client.budget(device, 0)
    time.sleep(0.5)
    r.say("print('waited', unmap(at, 4*MIB), release(h), unreserve(at, 4*MIB), flush=True)", 2)
    time.sleep(0.3)
    r.process.end_input()
    time.sleep(0.5)
    touch(sim, "go")
    code = r.process.wait(within_s=10)
    print("exit", code, r.process._unread.decode(), r.process.errors())
    assert code == 0


def test_two_threads_unmap_the_same(repl, scheduler, sim):
    """A program's mistake: the driver answers both."""
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuEventQuery until=go thread=gpushare-mem times=0", "PYTHONFAULTHANDLER": "1"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    take(client)
    client.budget(device, 0)
    time.sleep(0.5)
    r.say("unmap(at, 4*MIB)", 2)
    r.say("unmap(at, 4*MIB)", 3)
    time.sleep(0.3)
    touch(sim, "go")
    print(r.result(2), r.result(3))
    print(r.run("release(h), sums(), unreserve(at, 4*MIB)"))


def test_unmap_while_two_ask(repl, scheduler, sim):
    r = repl({"GPUSHARE_MEMORY": "off"})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(150*MIB, handle_types=1)")
    client.expect(TurnRequested); client.grant()
    print(r.result(), r.run("export(h) > 0"), r.run("address_range(at)"), r.run("attribute(20, at)"))
    take(client)
    r.say("b = reserve(150*MIB); map_at(b, 150*MIB, h)")
    try:
        print("map without turn", r.result(within_s=3))
    except TimeoutError:
        print("off: map waits for the turn")


def test_reset_of_a_failed_context(repl, scheduler, sim):
    """A sticky error, then a reset, while memory is parked; and again at work."""
    r = repl()
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("write(at, b'kept')") == "0"
    print("fails", r.run("launch('assert_fail', 0)"), r.run("call('cuCtxSynchronize')"))
    client.expect(TurnDropped)
    client.budget(device, 0)
    time.sleep(0.5)
    print("reset", r.run("call('cuDevicePrimaryCtxReset_v2', 0)"))
    print(r.run("opened(0) > 0"))
    r.say("(unmap(at, 4*MIB), release(h), unreserve(at, 4*MIB))")
    print(r.result())
    r.say("alloc(4*MIB) > 0")
    grant(client, device)
    print(r.result())


def test_released_handle_while_it_is_given_back(repl, scheduler, sim):
    """The number is no more in use, but its memory waits for the mover: asking for its properties."""
    r = repl({"GPUSHARE_SIM_FAULTS": "hold cuEventQuery until=go thread=gpushare-mem times=0", "PYTHONFAULTHANDLER": "1", "MALLOC_PERTURB_": "165"})
    client, device = welcome(r, scheduler)
    r.say("h = create(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    take(client)
    client.budget(device, 0)
    time.sleep(0.5)
    r.say("release(h)", 2)
    time.sleep(0.3)
    print("again", r.run("release(h)", 4))
    r.say("properties(h)", 3)
    time.sleep(0.3)
    touch(sim, "go")
    time.sleep(2)
    print(r.result(2, within_s=5)) if False else None
    assert r.run("sums() if 'sums' in globals() and False else 0") == "0"
    time.sleep(0.5)
    serial = client.budget(device, 0)
    last = client.expect_memory(lambda m: m.budget_serial == serial)
    print(last)
    assert last.bytes_allocated == 0


def test_stress(repl, scheduler, sim):
    import random
    r = repl({"PYTHONFAULTHANDLER": "1"})
    client, device = welcome(r, scheduler)
    r.run("exec(open('./enemy_stress.py').read())")
    r.say("hs, ats = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("write(ats, b'shared')") == "0"
    assert r.run("unmap(ats, 4*MIB)") == "0"
    r.run("out = []")
    for n in (2, 3, 4):
        r.say(f"stress({n}, hs, 20, out)", n)
    rng = random.Random(1)
    end = time.monotonic() + 19
    held, rounds = True, 0
    while time.monotonic() < end:
        if held:
            time.sleep(rng.random() * 0.02)
            try:
                client.recall(); client.expect(TurnDropped, within_s=10)
            except TimeoutError as e:
                print("no drop", str(e)[-800:]); pytest.fail("no drop")
            held = False
            client.budget(device, rng.choice([0, 0, 2 * MIB, 66 * MIB]))
            time.sleep(rng.random() * 0.05)
            if rng.random() < .4:
                client.budget(device, rng.choice([4, 70, 200]) * MIB)  # ahead of the turn
                time.sleep(rng.random() * 0.02)
        else:
            try:
                client.expect(TurnRequested, within_s=10)
            except TimeoutError as e:
                print("no request", str(e)[-800:]); pytest.fail("no request")
            client.budget(device, UNLIMITED)
            client.grant()
            held = True
            rounds += 1
    if not held:
        client.expect(TurnRequested); client.budget(device, UNLIMITED); client.grant()
    print("rounds", rounds)
    for _ in range(20):
        if r.run("len(out)") == "3": break
        time.sleep(.5)
    print(r.run("out"))
    assert "raised" not in r.run("str(out)") and r.run("[o[2] for o in out]") == "['ok', 'ok', 'ok']"


FAULTS = [f"fail {c} nth={n} result={res} thread=gpushare-mem from=armed" for c, res in
          (("cuMemUnmap", 1), ("cuMemRelease", 1), ("cuMemSetAccess", 1), ("cuMemAddressReserve", 2), ("cuMemAddressReserve", 1), ("cuMemMap", 1), ("cuMemCreate", 2), ("cuMemcpyHtoDAsync", 1), ("cuMemcpyDtoHAsync", 1))
          for n in (1, 2)]


@pytest.mark.parametrize("layout", ["unmapped", "noaccess", "twice", "noaccess_twice"])
@pytest.mark.parametrize("fault", FAULTS)
def test_mover_faults(repl, scheduler, sim, fault, layout):
    r = repl({"GPUSHARE_SIM_FAULTS": fault})
    client, device = welcome(r, scheduler)
    r.say("h, at = mapped(4*MIB)")
    grant(client, device)
    assert r.result() == "None"
    assert r.run("write(at, b'kept')") == "0"
    assert r.run("write(at + 4*MIB - 4, b'tail')") == "0"
    if layout == "unmapped":
        assert r.run("unmap(at, 4*MIB)") == "0"
    if "noaccess" in layout:
        assert r.run("grant(at, 4*MIB, 0)") == "0"
    if "twice" in layout:
        r.run("b = reserve(4*MIB)")
        assert r.run("map_at(b, 4*MIB, h)") == "0"
        if layout == "twice": assert r.run("grant(b, 4*MIB)") == "0"
    take(client)
    touch(sim, "armed")
    serial = client.budget(device, 0)
    try:
        client.expect_memory(lambda m: m.budget_serial == serial and m.bytes_allocated == m.bytes_parked) if False else None
    except TimeoutError:
        pass
    time.sleep(1.6)
    print(r.run("0"))
    if layout == "unmapped":
        r.say("map_at(at, 4*MIB, h)")
    else:
        r.say("grant(at, 4*MIB)")
    for _ in range(4):
        client.expect(TurnRequested)
        client.budget(device, UNLIMITED)
        client.grant()
        try:
            res = r.result(within_s=1); break
        except TimeoutError:
            continue
    assert res == "0"
    assert r.run("grant(at, 4*MIB)") == "0"
    assert r.run("read(at, 4), read(at + 4*MIB - 4, 4)") == "(b'kept', b'tail')"
    if layout == "twice":
        assert r.run("read(b, 4)") == "b'kept'"
    take(client)
    serial = client.budget(device, 0)
    client.expect_memory(lambda m: m.budget_serial == serial and m.bytes_allocated == m.bytes_parked)
    assert r.run("unmap(at, 4*MIB)") == "0"
    if "twice" in layout: assert r.run("unmap(b, 4*MIB)") == "0"
    assert r.run("release(h)") == "0"
    serial = client.budget(device, 0)
    assert client.expect_memory(lambda m: m.budget_serial == serial).bytes_allocated == 0
    assert r.run("unreserve(at, 4*MIB)") == "0"
