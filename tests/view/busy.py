"""A fleet of a busy day, for pictures and for tests of the page."""

from __future__ import annotations

from jupyter_gpushare.view.fleet import SILENT_S, Fleet
from tests.view.fleets import GIB, device, node_row, place, reports, tenant


def fill(fleet: Fleet, now_s: float) -> None:
    """Six nodes: two as they should be, one each with a problem, another version, programs outside
    the sharing, and silence."""
    book = {
        "t1": tenant(
            "alice", "diffusion.ipynb", state="holding", bytes_resident=31 * GIB, turns=41
        ),
        "t2": tenant("bob", "finetune-llama.ipynb", state="waiting", bytes_parked=22 * GIB),
        "t3": tenant("carol", "plots.ipynb", state="waiting", bytes_resident=0, waited_s=420.0),
        "t4": tenant("alice", "notes.ipynb", bytes_resident=0, turns=0, waits=0, waited_s=0.0),
        "t5": tenant(
            "dave", "train.py", kind="run", state="holding", runs_as="batch", held_s=9000.0
        ),
    }
    reports(
        fleet,
        "gpu-03",
        {
            "8f2c41aa03": device(
                bytes_used=38 * GIB,
                holders=(place("t1", 42.0),),
                queue=(place("t2", 12.0), place("t3", 3.0)),
            ),
            "b07e99d124": device(bytes_used=61 * GIB, holders=(place("t5", 1260.0, overdue=True),)),
            "c1d2e3f405": device(bytes_used=2 * GIB),
        },
        book,
        now_s=now_s,
        row=node_row(platform="kubernetes", bytes_host_available=310 * GIB),
    )
    one = {"u1": tenant("erin", "graph-nets.ipynb", state="holding")}
    reports(
        fleet,
        "gpu-01",
        {"d0": device(holders=(place("u1", 5.0),)), "d1": device(lost=True)},
        one,
        now_s=now_s,
        row=node_row(platform="slurm", problems=("No kubelet answers. Restart it on this node.",)),
        skew_s=-95.0,
    )
    reports(
        fleet,
        "gpu-02",
        {"d0": device(bytes_used=44 * GIB, bytes_outside=25 * GIB)},
        {},
        now_s=now_s,
        row=node_row(platform="docker"),
    )
    reports(fleet, "gpu-04", {"d0": device(), "d1": device()}, {}, now_s=now_s)
    reports(fleet, "gpu-10", {"d0": device()}, {}, now_s=now_s, row=node_row(version="0.0.9"))
    reports(fleet, "gpu-11", {"d0": device()}, {}, now_s=now_s - 3 * SILENT_S)
