"""`%gpushare explain`: what it makes of the scheduler's answer, and in real kernels."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.kernel.magics import Explained, scheduler
from jupyter_gpushare.kernel.magics.explain import answered_before_s, explain, length
from jupyter_gpushare.kernel.magics.words import Unable
from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import Kernel

NOON_S = time.mktime((2026, 3, 5, 12, 0, 0, 0, 0, -1))


def had(name: str, had_s: float, owner: str = "ann") -> dict[str, Any]:
    return {"name": name, "owner": owner, "had_s": had_s}


def part(begin_s: float, end_s: float, *who: dict[str, Any], **fields: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {
        "reason": "turn",
        "why": "Others were before it.",
        "in_the_way": None,
        "others": 0,
    }
    return {"begin_s": begin_s, "end_s": end_s, "had": list(who), **blank, **fields}


def wait(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "begin_s": parts[0]["begin_s"],
        "end_s": parts[-1]["end_s"],
        "how": "served",
        "is_pause": False,
        "used_s": 0.0,
        "intervals": list(parts),
        **fields,
    }


def told(*waits: dict[str, Any], **cells: Any) -> list[str]:
    answer = {"forgotten": cells.pop("forgotten", 0), "waits": list(waits)}
    return repr(Explained(answer, **cells, now_s=NOON_S)).splitlines()


@pytest.mark.promise(
    "jupyter-25",
    "`%gpushare explain` tells why the last cell waited: each interval with its times, its reason "
    "and who had the GPU",
)
def test_each_interval_is_a_line() -> None:
    """With times of the clock, how long it was, the reason, what was in the way and who had it."""
    memory = {
        "why": "Memory had to move before its turn; others finished first.",
        "in_the_way": "b.ipynb had 3.0 GiB on GPU that could not be moved.",
    }
    waited = wait(
        part(-90, -60, had("b.ipynb", 20), had("c.ipynb", 10), others=3),
        part(-60, -59.7, had("b.ipynb", 0.3), **memory),
    )
    assert told(waited, this_cell=(-1, 0), last_cell=(-95, -20)) == [
        "The last cell waited 30 s for the GPU.",
        "  11:58:30\u201311:59:00   30 s  Others were before it. b.ipynb (20 s), c.ipynb (10 s) "
        "and 3 more had the GPU.",
        "  11:59:00\u201311:59:00  0.3 s  Memory had to move before its turn; others finished "
        "first. b.ipynb had 3.0 GiB on GPU that could not be moved. b.ipynb had the GPU. Then it "
        "got the GPU.",
    ]


def test_times_are_short_in_the_table() -> None:
    """A sentence has the words, a row the sign; a narrow page does not break a time."""
    told_at_once = wait(part(-60, -59.95, had("b.ipynb", 0.05)))
    heading, line = told(told_at_once, last_cell=(-95, -20))
    assert heading == "The last cell waited less than 0.1 s for the GPU."
    assert "  <0.1 s  Others were before it." in line
    answer = {"waits": [told_at_once], "forgotten": 0}
    page = Explained(answer, last_cell=(-95, -20), now_s=NOON_S)._repr_html_()
    assert 'white-space: nowrap">&lt;0.1 s</td>' in page


@pytest.mark.promise("jupyter-25")
def test_a_pause_is_told_as_one() -> None:
    """With what the cell had had by then; a wait that goes on is told as that."""
    paused = wait(
        part(-9, 0, had("another user", 9, "another user")),
        is_pause=True,
        used_s=30.0,
        how="waits",
        end_s=None,
    )
    heading, line = told(paused, this_cell=(-60, 0))
    assert heading == "This cell has waited 9.0 s for the GPU so far."
    assert line.endswith(
        "Paused after 30 s of the GPU. Others were before it. Another user had the GPU. It still "
        "waits."
    )


@pytest.mark.promise("jupyter-25")
def test_memory_that_came_back_is_a_line() -> None:
    """After the line of the queue, which says that the cell had the GPU by then; alone where the
    cell did not queue; and while it goes on."""
    back = {"reason": "restored", "why": "Its memory came back: 1.2 GiB.", "bytes_restored": 9}
    waited = wait(part(-90, -60, had("b.ipynb", 30)), part(-60, -59.6, **back))
    assert told(waited, this_cell=(-1, 0), last_cell=(-95, -20)) == [
        "The last cell waited 30 s for the GPU.",
        "  11:58:30\u201311:59:00   30 s  Others were before it. b.ipynb had the GPU. Then it got "
        "the GPU.",
        "  11:59:00\u201311:59:00  0.4 s  Its memory came back: 1.2 GiB.",
    ]
    alone = wait(part(-60, -59.6, **back))
    assert told(alone, this_cell=(-1, 0), last_cell=(-95, -20)) == [
        "The last cell waited 0.4 s for the GPU.",
        "  11:59:00\u201311:59:00  0.4 s  Its memory came back: 1.2 GiB.",
    ]
    heading, line = told(wait(part(-9, 0, **back), end_s=None), this_cell=(-60, 0))
    assert heading == "This cell has waited 9.0 s for the GPU so far."
    assert line.endswith("Its memory came back: 1.2 GiB.")


def test_others_are_named_where_there_are_several() -> None:
    """A notebook's owner stands before its name, unless all are of one user."""
    several = part(-9, -5, had("a.ipynb", 2), had("b.ipynb", 1, "ben"), had("cara", 1, "cara"))
    assert "ann: a.ipynb (2.0 s), ben: b.ipynb (1.0 s) and cara (1.0 s)" in told(wait(several))[1]
    alone = part(-9, -5, had("a.ipynb", 2), had("another user", 1, "another user"))
    assert "a.ipynb (2.0 s) and another user (1.0 s) had the GPU." in told(wait(alone))[1]


@pytest.mark.promise("jupyter-25")
def test_a_cell_that_did_not_wait_is_told_as_that() -> None:
    """What waited before it is told too, and that the scheduler keeps no more."""
    earlier = wait(part(-90, -60), how="interrupted")
    lines = told(earlier, this_cell=(-1, 0), last_cell=(-50, -20), forgotten=7)
    assert lines[:2] == [
        "The last cell, from 11:59:10 to 11:59:40, did not wait for the GPU.",
        "This kernel waited 30 s for the GPU before.",
    ]
    assert lines[2].endswith("Others were before it. Then the wait was interrupted.")
    assert lines[3] == "The scheduler keeps no more than that of 7 earlier waits."
    assert told() == ["This kernel has not waited for the GPU, as far as the scheduler knows."]


def test_a_wait_belongs_to_the_cell_in_which_it_began() -> None:
    """The scheduler may hear of its end when the next cell runs already."""
    lines = told(wait(part(-90, -0.5)), this_cell=(-1, 0), last_cell=(-95, -1.1))
    assert lines[0] == "The last cell waited 90 s for the GPU."


def test_a_wait_of_another_day_has_its_date() -> None:
    """Today's times have none."""
    assert "04 Mar 23:59:00" in told(wait(part(-43_260, -43_200)))[1]


def test_what_a_newer_scheduler_adds_is_no_trouble() -> None:
    """Fields and endings that are not known here are passed over."""
    newer = wait({**part(-9, -5), "mood": "good"}, how="teleported", colour="blue")
    assert told(newer)[1].endswith("Others were before it.")


def test_names_are_text_in_html() -> None:
    """A table with a row for each interval, in which names do nothing."""
    answer = {"forgotten": 0, "waits": [wait(part(-9, -5, had("<img src=x>", 4)))]}
    shown = Explained(answer, now_s=NOON_S)._repr_html_()
    assert "<img" not in shown and "&lt;img src=x&gt; had the GPU." in shown
    assert shown.count("<tr>") == 1 and shown.startswith("<p>This kernel waited")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.01, "less than 0.1 s"),
        (0.34, "0.3 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (245, "4 min 5 s"),
        (300, "5 min"),
        (7800, "2 h 10 min"),
        (7200, "2 h"),
    ],
)
def test_lengths_have_two_units_at_most(seconds: float, words: str) -> None:
    assert length(seconds) == words


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a kernel of this tenant, whose hook is there."""
    module = "jupyter_gpushare.kernel.magics.explain"
    monkeypatch.setattr(f"{module}.hook_of", lambda notice: None)
    monkeypatch.setattr(f"{module}.own_tenant", lambda: "1-a/b")


@pytest.mark.promise(
    "jupyter-26",
    "`%gpushare explain` says in a sentence that the scheduler is older, silent, or that nothing "
    "waited",
)
@pytest.mark.parametrize(
    ("code", "said"), [(404, "does not keep why cells waited"), (403, r"^No\. Ask later\.$")]
)
def test_an_older_scheduler_is_told(
    inside: None, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    """404 is a scheduler without the route; its other refusals are its own sentences."""
    asked = []

    def answer(verb: str, path: str, body: object) -> tuple[int, Any]:
        asked.append((verb, path))
        return code, {"message": "No. Ask later."}

    monkeypatch.setattr(scheduler, "_asked", answer)
    with pytest.raises(Unable, match=said):
        explain("")
    assert asked == [("GET", "/tenants/1-a%2Fb/waits")]


@pytest.mark.promise("jupyter-26")
def test_a_silent_scheduler_is_told(inside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers, the doctor is named."""
    monkeypatch.delenv("GPUSHARE_SOCKET", raising=False)
    with pytest.raises(Unable, match=r"The scheduler does not answer\. `%gpushare doctor`"):
        explain("")


@pytest.mark.parametrize(
    ("at_s", "late_s"), [(None, 0.0), (99.5, 0.5), (100.0, 0.0), (101.0, 0.0), (5.0, 0.0)]
)
def test_times_count_from_the_answer(at_s: float | None, late_s: float) -> None:
    """On a busy machine it comes late: a short wait would seem to have begun after its cell."""
    answer = {} if at_s is None else {"at_s": at_s}
    assert answered_before_s(answer, 100.0) == late_s


@pytest.fixture(scope="module")
def pair(lasting: SharedGpu) -> tuple[Kernel, Kernel]:
    """Nothing has waited yet."""
    alice, bob = lasting.kernel("alice.ipynb"), lasting.kernel("bob.ipynb")
    assert "has not waited for the GPU" in bob.run("%gpushare explain").ok().text
    return alice, bob


@pytest.mark.promise("jupyter-25")
@pytest.mark.promise("jupyter-26")
def test_a_kernel_explains_its_last_cell(lasting: SharedGpu, pair: tuple[Kernel, Kernel]) -> None:
    """First nothing has waited; then a cell waits for another kernel's, which is told by name."""
    alice, bob = pair
    alice.run(f"%gpushare hold 5m\n{gpu_cells.spin(1)}").ok()
    waits = bob.submit(gpu_cells.spin(1))
    lasting.await_waiter("bob.ipynb")
    alice.run("%gpushare release").ok()
    bob.wait(waits).ok()
    reply = bob.run("%gpushare explain").ok()
    assert re.match(r"The last cell waited [\w. ]+ for the GPU\.\n", reply.text), reply.text
    assert re.search(
        r"  [\d:]{8}\u2013[\d:]{8} +[\w.< ]+ s  A user kept the GPU by hand\. "
        r"alice\.ipynb had the GPU\.",
        reply.text,
    ), reply.text
    assert "Then it got the GPU." in reply.text
    assert "<table" in reply.html and "alice.ipynb had the GPU." in reply.html
    again = bob.run("%gpushare explain").ok().text
    assert re.match(r"The last cell, from [\d:]{8} to [\d:]{8}, did not wait", again), again
    assert "alice.ipynb had the GPU." in again


@pytest.mark.promise("jupyter-25")
def test_an_interrupted_wait_is_explained(lasting: SharedGpu, pair: tuple[Kernel, Kernel]) -> None:
    """The cell that was interrupted while it waited is the last cell, and is told as that."""
    carol, dave = pair
    carol.run(f"%gpushare hold 5m\n{gpu_cells.spin(1)}").ok()
    waits = dave.submit(gpu_cells.spin(1))
    lasting.await_waiter(dave.name)
    dave.manager.interrupt_kernel()
    dave.wait(waits)
    text = dave.run("%gpushare explain").ok().text
    assert text.startswith("The last cell waited"), text
    assert "Then the wait was interrupted." in text, text
    carol.run("%gpushare release").ok()


@pytest.mark.promise("jupyter-25")
def test_a_paused_cell_is_explained(
    settings_as_new: SharedGpu, pair: tuple[Kernel, Kernel], tmp_path: Path
) -> None:
    """A cell whose turn ended while another one waited was paused, after what it had used."""
    gpu = settings_as_new
    gpu.scheduler.client.change_settings({"quantum_s": 0.2})
    enough = tmp_path / "enough"
    work = f"import os\nwhile not os.path.exists({str(enough)!r}):\n    gpu.spin(5)"
    cells = []
    for kernel in pair:
        cells.append(kernel.submit(work))
        gpu.await_holder(kernel.name)
    gpu.await_waiter("alice.ipynb")  # her cell goes on when she has the GPU again
    gpu.await_holder("alice.ipynb")
    enough.touch()
    for kernel, cell in zip(pair, cells, strict=True):
        kernel.wait(cell).ok()
    text = pair[0].run("%gpushare explain").ok().text
    assert re.search(r"  [\d:]{8}\u2013[\d:]{8} .* Paused after [\d.]+ s of the GPU\. ", text), text
    assert "bob.ipynb had the GPU. Then it got the GPU." in text, text
