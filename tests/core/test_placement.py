"""Where a tenant is put that says what it needs: the rule alone, and as the core applies it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.errors import NeedNotMet
from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.placement import BadNeed, Candidate, Need, need_of, place
from jupyter_gpushare.core.records import Placement

from .desk import TURNS_ALONE, Desk

GIB = 1 << 30
TOTAL = 80 * GIB
PLACED = pytest.mark.promise(
    "scheduler-35",
    "A kernel that says what it needs is put where so much memory is free and the queue is "
    "shortest, and kernels that start together spread out",
)
BAD = pytest.mark.promise(
    "bad-input-32",
    "A need that is negative, not a number, without a unit or larger than any device: the kernel "
    "starts, is not placed, and says why",
)


def candidate(
    device: str = "A", free: int = 40, *, queue: int = 0, tenants: int = 0, **more: object
) -> Candidate:
    """With sizes in GiB."""
    said: dict[str, object] = {
        "device": DeviceId(device),
        "uuid": f"GPU-{device}",
        "bytes_usable": 78 * GIB,
        "bytes_free": free * GIB,
        "queue": queue,
        "tenants": tenants,
        **more,
    }
    return Candidate(**said)  # type: ignore[arg-type]


def chosen(*candidates: Candidate, need: int = 20, devices: int = 1) -> str:
    return "".join(place(candidates, Need(need * GIB, devices)).devices)


@PLACED
def test_where_the_need_is_free_and_the_queue_short() -> None:
    """Free memory decides whether, then the queue, then the number of tenants, then what is
    free."""
    assert chosen(candidate("A", 19), candidate("B", 20, queue=9)) == "B"
    assert chosen(candidate("A", queue=2), candidate("B", queue=1, tenants=5)) == "B"
    assert chosen(candidate("A", tenants=2), candidate("B", tenants=1)) == "B"
    assert chosen(candidate("A", 40), candidate("B", 50)) == "B"
    assert chosen(candidate("A"), candidate("B")) == "A"


@PLACED
def test_several_devices() -> None:
    """The need is free on each; CUDA numbers them in the machine's order."""
    devices = [candidate("A", queue=3), candidate("B", 10), candidate("C"), candidate("D")]
    assert chosen(*devices, devices=2) == "CD"
    assert chosen(*devices, devices=3) == "ACD"
    assert place(devices, Need(GIB, 3)).visible == "GPU-B,GPU-C,GPU-D"


@pytest.mark.parametrize(
    ("candidates", "need", "says"),
    [
        ([], Need(GIB), "NVML lists no GPU"),
        ([candidate(uuid="")], Need(GIB), "NVML lists no GPU"),
        ([candidate()], Need(100 * GIB), r"100 GiB, and notebooks can have 78 GiB at most"),
        ([candidate()] * 2, Need(GIB, 3), "needs 3 GPUs, and there are 2"),
        ([candidate(uuid="MIG-1")] * 2, Need(GIB, 2), "one MIG instance"),
        ([candidate(open=False)], Need(GIB), "are paused"),
        ([candidate(free=7), candidate(free=-3)], Need(20 * GIB), "20 GiB, and 7 GiB are free"),
        ([candidate(free=40), candidate(free=-3)], Need(20 * GIB, 2), "and 0 KiB are free at most"),
    ],
)
@BAD
def test_why_nowhere(candidates: list[Candidate], need: Need, says: str) -> None:
    """One sentence on what is wrong, one on what to do."""
    placement = place(candidates, need)
    assert (placement.devices, placement.visible) == ((), "")
    assert says in placement.reason
    assert placement.reason.count(". ") == 1 and placement.reason.endswith(".")


@pytest.mark.parametrize(
    ("need", "devices", "says"),
    [
        ("-20GiB", "", "no amount of memory"),
        ("nan", "", "no amount of memory"),
        ("infGiB", "", "no amount of memory"),
        ("20", "", "has no unit"),
        ("20 GB", "", "no amount of memory"),
        ("0GiB", "", "is nothing"),
        ("9" * 400 + "TiB", "", "is nothing"),
        ("much", "", "no amount of memory"),
        ("", "2", "no `need`"),
        ("1GiB", "0", "from 1 to 64"),
        ("1GiB", "-1", "from 1 to 64"),
        ("1GiB", "1.5", "from 1 to 64"),
        ("1GiB", "65", "from 1 to 64"),
        ("1GiB", "²", "from 1 to 64"),
    ],
)
@BAD
def test_what_cannot_be_meant(need: str, devices: str, says: str) -> None:
    with pytest.raises(BadNeed, match=says) as refused:
        need_of(need, devices)
    assert str(refused.value).count(". ") == 1


@pytest.mark.parametrize(
    ("need", "amount"), [("20GiB", 20 * GIB), (" 1.5 gib ", 3 * GIB // 2), ("512MiB", GIB // 2)]
)
def test_what_is_meant(need: str, amount: int) -> None:
    assert need_of(need, "3") == Need(amount, 3)


@given(
    st.lists(
        st.tuples(st.integers(-5, 60), st.integers(0, 3), st.integers(0, 3), st.booleans()),
        max_size=8,
    ),
    st.integers(1, 80),
    st.integers(1, 4),
)
@PLACED
def test_any_place_is_good(told: list[tuple[int, int, int, bool]], need: int, devices: int) -> None:
    """So many devices as were asked for, all of them open with the need free, and none that is left
    out is better; else a reason."""
    candidates = [
        candidate(str(number), free, queue=queue, tenants=tenants, open=is_open)
        for number, (free, queue, tenants, is_open) in enumerate(told)
    ]
    fit = [each for each in candidates if each.open and each.bytes_free >= need * GIB]
    found = place(candidates, Need(need * GIB, devices))
    assert bool(found.devices) is (len(fit) >= devices) is not bool(found.reason)
    taken = [each for each in fit if each.device in found.devices]
    assert len(taken) == len(found.devices)
    worst = max(((each.queue, each.tenants, -each.bytes_free) for each in taken), default=None)
    for each in fit:
        assert each in taken or not taken or (each.queue, each.tenants, -each.bytes_free) >= worst


# ---- in the core -------------------------------------------------------------------------------


@pytest.fixture
def desk() -> Desk:
    """Four devices of 80 GiB."""
    made = Desk(TURNS_ALONE, devices="")
    for device in "ABCD":
        made.do(
            ev.DeviceFound(
                device=DeviceId(device), name="GPU", bytes_total=TOTAL, uuid=f"GPU-{device}"
            )
        )
    return made


def starts(desk: Desk, name: str, need: str = "20GiB", devices: str = "", **more: object) -> str:
    """Where it is put."""
    desk.do(
        ev.TenantRegistered(
            tenant=TenantId(name),
            name=name,
            owner=name,
            kind="kernel",
            need=need,
            need_devices=devices,
            **more,  # type: ignore[arg-type]
        )
    )
    placement = desk.status(name).placement
    assert placement is not None
    return "".join(placement.devices)


@PLACED
def test_ten_kernels_at_once_spread_out(desk: Desk) -> None:
    """None of them has opened CUDA yet. When the devices are full, the next one is not placed."""
    where = Counter(starts(desk, f"k{n}") for n in range(10))
    assert sorted(where.values()) == [2, 2, 3, 3]
    assert [starts(desk, f"m{n}") for n in range(3)].count("") == 1
    assert "are free at most" in str(desk.status("m2").placement)


@PLACED
def test_a_place_counts_as_long_as_its_tenant_lives(desk: Desk) -> None:
    """For its need, or for what it has if that is more; a tenant without a need counts for what it
    has."""
    assert starts(desk, "a", "50GiB") == "A"
    client = desk.client("a", "A")
    memory = {"bytes_parked": 0, "bytes_fixed": 0}
    desk.do(
        ev.MemoryReported(client=client, device=DeviceId("A"), bytes_allocated=10 * GIB, **memory)
    )
    unplaced = desk.client("b", "BCD")
    for device in "BCD":
        desk.do(
            ev.MemoryReported(
                client=unplaced, device=DeviceId(device), bytes_allocated=60 * GIB, **memory
            )
        )
    assert starts(desk, "c", "30GiB") == ""
    assert starts(desk, "d", "25GiB") == "A"
    desk.do(ev.TenantRemoved(tenant=TenantId("d")))
    desk.do(ev.TenantRemoved(tenant=TenantId("a")))
    assert starts(desk, "e", "60GiB") == "A"


@PLACED
def test_paused_and_lost_devices_are_left_out(desk: Desk) -> None:
    desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.PAUSED))
    desk.do(ev.DeviceLost(device=DeviceId("B")))
    assert starts(desk, "a", devices="2") == "CD"
    assert starts(desk, "b", devices="3") == ""


@PLACED
def test_who_waits_makes_a_device_less_attractive(desk: Desk) -> None:
    """A turn and a queue count before the number of tenants."""
    for name in "ab":
        desk.ask(desk.client(name, "A"))
    desk.ask(desk.client("c", "B"))
    for name in "defg":
        desk.client(name, "CD")
    assert starts(desk, "x", devices="2") == "CD"
    assert starts(desk, "y", devices="3") == "BCD"


@pytest.mark.promise(
    "scheduler-36",
    "A need is no more than a wish for a place: it keeps nobody from memory or turns",
)
def test_a_need_keeps_nothing_from_others(desk: Desk) -> None:
    """Who claims all of a device and does nothing with it gets no turn by that, and others do."""
    assert [starts(desk, f"k{n}", "78GiB") for n in range(4)] == ["A", "B", "C", "D"]
    other = desk.client("other", "ABCD")
    assert desk.ask(other) and desk.granted() == [other]


def test_a_place_of_before_a_restart_stays(desk: Desk) -> None:
    """A scheduler that knows a tenant by its token is told where it was put."""
    assert starts(desk, "a", placed_on=(DeviceId("C"),)) == "C"
    assert [starts(desk, f"k{n}") for n in range(3)] == ["A", "B", "D"]


@PLACED
def test_a_place_of_before_a_restart_stays_without_its_need(desk: Desk) -> None:
    """Who has taken its need back before it opened CUDA counts there as one of its tenants, as
    before the restart."""
    assert starts(desk, "a", need="", placed_on=(DeviceId("A"),)) == "A"
    assert [starts(desk, name) for name in "bc"] == ["B", "C"]


def test_a_broken_core_knows_the_places(desk: Desk) -> None:
    starts(desk, "a", "70GiB")
    machine = desk.scheduler._machine
    after = type(machine).in_place_of(machine, desk.scheduler.settings, (), desk.now_s)
    (tenant,) = after.snapshot(desk.now_s).tenants
    assert tenant.placement == Placement((DeviceId("A"),), 70 * GIB, "GPU-A")
    assert list(after._state.placed) == ["a"]


def test_who_says_nothing_is_not_placed(desk: Desk) -> None:
    desk.tenant("a")
    assert desk.status("a").placement is None


# ---- while it runs -----------------------------------------------------------------------------

SAID_LATER = pytest.mark.promise(
    "scheduler-37",
    "A notebook that runs says another need, as far as its GPU has so much left; it stays where it "
    "is, and notebooks that are placed later are put beside it accordingly",
)


def says(desk: Desk, name: str, need: str, devices: str = "") -> None:
    desk.do(ev.NeedAsked(tenant=TenantId(name), need=need, need_devices=devices))


def needs(desk: Desk, name: str) -> int:
    """In GiB."""
    placement = desk.status(name).placement
    return placement.bytes_needed // GIB if placement else 0


def has(desk: Desk, name: str, device: str, gib: int) -> None:
    desk.do(
        ev.MemoryReported(
            client=desk.client(name, device),
            device=DeviceId(device),
            bytes_allocated=gib * GIB,
            bytes_parked=0,
            bytes_fixed=0,
        )
    )


@SAID_LATER
def test_another_need_counts_where_others_are_placed(desk: Desk) -> None:
    """More keeps those who come later away, and less, or none, lets them come again."""
    assert starts(desk, "a", "10GiB") == "A"
    says(desk, "a", "70GiB")
    assert [starts(desk, f"k{n}", "30GiB") for n in range(6)] == ["B", "C", "D", "B", "C", "D"]
    assert starts(desk, "l", "30GiB") == ""
    says(desk, "a", "1GiB")
    assert starts(desk, "m", "30GiB") == "A"
    says(desk, "a", "")
    assert (needs(desk, "a"), desk.status("a").placement) == (0, Placement((DeviceId("A"),)))
    assert starts(desk, "n", "45GiB") == "A"


@SAID_LATER
def test_who_was_not_placed_needs_it_where_it_is(desk: Desk) -> None:
    """On the device that it has opened; without one, nobody knows which it will be."""
    desk.tenant("a")
    with pytest.raises(NeedNotMet, match="has not used a GPU yet"):
        says(desk, "a", "70GiB")
    desk.client("a", "C")
    says(desk, "a", "70GiB")
    assert desk.status("a").placement == Placement((DeviceId("C"),), 70 * GIB)
    assert [starts(desk, f"k{n}", "60GiB") for n in range(4)] == ["A", "B", "D", ""]


@SAID_LATER
def test_one_device_is_where_everybody_is() -> None:
    """So a need may be said before the first use; one that was never placed takes it back whole."""
    desk = Desk(TURNS_ALONE, devices="A")
    desk.tenant("a")
    says(desk, "a", "")
    assert desk.status("a").placement is None
    says(desk, "a", "1KiB")
    assert desk.status("a").placement == Placement((DeviceId("A"),), 1024)


@SAID_LATER
@pytest.mark.parametrize(
    ("need", "devices", "why"),
    [
        ("71GiB", "", "It needs 71 GiB, and its GPU has 58.4 GiB beside what others have and need"),
        ("300GiB", "", "beside what others have and need"),
        ("41GiB", "", "may have 40 GiB on a GPU at most"),
        ("20GiB", "2", "has 1 GPU until it is restarted"),
        ("20", "", "has no unit"),
    ],
)
def test_a_need_that_cannot_be_met_changes_nothing(
    desk: Desk, need: str, devices: str, why: str
) -> None:
    """It is the request's fault, and says what to do."""
    assert starts(desk, "a", "10GiB", cap_bytes=0 if need != "41GiB" else 40 * GIB) == "A"
    has(desk, "a", "A", 4)
    has(desk, "b", "A", 20)
    with pytest.raises(NeedNotMet, match=why) as refused:
        says(desk, "a", need, devices)
    assert str(refused.value).count(". ") == 1
    assert needs(desk, "a") == 10


@SAID_LATER
def test_less_may_always_be_said(desk: Desk) -> None:
    """Also where others have taken more than was left."""
    assert starts(desk, "a", "60GiB") == "A"
    has(desk, "b", "A", 70)
    says(desk, "a", "50GiB")
    assert needs(desk, "a") == 50
    with pytest.raises(NeedNotMet):
        says(desk, "a", "51GiB")


@SAID_LATER
def test_a_need_on_a_device_that_is_gone(desk: Desk) -> None:
    """Nothing can be promised there."""
    assert starts(desk, "a", "10GiB") == "A"
    desk.do(ev.DeviceWithdrawn(device=DeviceId("A")))
    with pytest.raises(NeedNotMet, match="is gone"):
        says(desk, "a", "11GiB")


@SAID_LATER
def test_a_wish_that_was_not_met_is_no_measure() -> None:
    """Who asked for too much at its start has been given nothing: less of it has to be there."""
    desk = Desk(TURNS_ALONE, devices="A")
    desk.find_device(80 * GIB)
    assert starts(desk, "a", "300GiB") == ""
    with pytest.raises(NeedNotMet, match="beside what others have and need"):
        says(desk, "a", "200GiB")
    says(desk, "a", "")
    assert desk.status("a").placement is None
    says(desk, "a", "10GiB")
    assert desk.status("a").placement == Placement((DeviceId("A"),), 10 * GIB)
