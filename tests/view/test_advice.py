"""Where a notebook finds a GPU."""

from __future__ import annotations

import pytest
from hypothesis import given

from jupyter_gpushare.view.advice import advice_of, size
from jupyter_gpushare.view.fleet import SILENT_S, Fleet
from jupyter_gpushare.view.glance import Glances
from tests.view.fleets import GIB, device, node_row, place, reports, tenant
from tests.view.test_cut import MARK, fleets


def told(fleet: Fleet, now_s: float = 1.0) -> list[str]:
    return [each["sentence"] for each in advice_of(fleet, now_s, Glances())]


@pytest.mark.promise("view-23", "A sentence says which node has room for a notebook, without names")
def test_a_free_gpu_is_named() -> None:
    """The one with most unused memory first."""
    fleet = Fleet()
    reports(fleet, "node-a", {"d": device(bytes_used=60 * GIB)}, {})
    reports(fleet, "node-b", {"d": device(bytes_used=19 * GIB)}, {})
    reports(fleet, "node-c", {"d": device(), "e": device(bytes_used=0)}, {})
    assert told(fleet) == [
        "node-c has 2 free GPUs, one of them with 78 GiB.",
        "node-b has a free GPU with 61 GiB; its queue is empty.",
        "node-a has a free GPU with 20 GiB; its queue is empty.",
    ]


def test_where_none_is_free_the_shortest_queue_is_named() -> None:
    """For as many devices as serve it."""
    fleet = Fleet()
    busy = device(holders=(place("x"),), queue=(place("y"), place("z")))
    reports(fleet, "node-a", {"d": busy}, {})
    reports(fleet, "node-b", {"d": busy, "e": device(holders=(place("w"),))}, {})
    assert told(fleet) == [
        "No GPU is free now. On node-b, 2 notebooks wait for 2 GPUs: that is the shortest queue."
    ]


def test_no_advice_where_turns_do_not_begin() -> None:
    """Paused, lost, silent, gathering or without turns; nor where there is no node."""
    fleet = Fleet()
    reports(fleet, "paused", {"d": device(mode="paused")}, {})
    reports(fleet, "lost", {"d": device(lost=True)}, {})
    reports(fleet, "gathers", {"d": device()}, {}, row=node_row(recovering=True))
    reports(fleet, "without", {"d": device()}, {}, row=node_row(turns_on=False))
    assert told(fleet) == told(Fleet()) == []
    reports(fleet, "silent", {"d": device()}, {})
    assert len(told(fleet)) == 1 and told(fleet, SILENT_S + 1) == []


@pytest.mark.promise("view-23")
@given(fleets())
def test_advice_names_nobody(fleet: Fleet) -> None:
    """Users read it."""
    assert MARK not in str(told(fleet))


def test_sizes_read_well() -> None:
    """Three digits at most."""
    sizes = [size(each) for each in (0, 1000, 1 << 20, int(3.25 * GIB), 61 * GIB, 1023 * GIB)]
    assert sizes == ["0 bytes", "1000 bytes", "1.0 MiB", "3.2 GiB", "61 GiB", "1023 GiB"]


def test_a_tenant_alone_makes_no_queue() -> None:
    """Its memory may be parked: the device is free for a newcomer."""
    fleet = Fleet()
    reports(fleet, "n", {"d": device(bytes_used=70 * GIB)}, {"t": tenant("a", "b")})
    assert told(fleet) == ["n has a free GPU with 10 GiB; its queue is empty."]
