"""`make soak SECONDS=600`: six tenants that together hold more than two small devices have, and one
fault after the other, each drawn by the seed. Every byte, the devices' journal and the scheduler's
log are judged. The last line is JSON. Ctrl-C ends it early; it prints what it has by then."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.end_to_end.handovers import Deck
from tests.soak.bed import Bed
from tests.soak.faults import (
    FAULTS,
    KILLS_SCHEDULER,
    LATER,
    NOT_SURVIVED,
    OF_THE_PROGRAM,
    bring_about,
)
from tests.soak.ground import Ground, real
from tests.soak.score import Score

HEAL_EVERY = 40
"""Faults: some more than there are kinds."""
WARM_S = 60.0
"""From then on a scheduler that lives on takes no more than it has."""
FIRST_SEED = 3000
REAL_GIB = 8.0
"""Six processes take 0.65 GiB beside their memory, and each up to 0.55 more at times: another
context, or a child. That leaves too little for the memory of all, and enough for anybody's."""
BARE_PATIENCE_S = 20.0


def soak(
    folder: Path, score: Score, seconds: float, kinds: list[str], ground: Ground | None = None
) -> Score:
    """One run. KeyboardInterrupt ends it early."""
    chance = random.Random(score.seed)
    bed = Bed(folder, chance, score, ground)
    score.device = bed.machine.device
    deck = Deck(kinds, chance)
    if bed.on.left_out:
        print(bed.on.left_out, flush=True)
    try:
        bed.begin()
        bed.heal()
        began_s, warm = time.monotonic(), (0, 0)
        while (passed_s := time.monotonic() - began_s) < seconds:
            kind = deck.deal()
            if not bring_about(bed, kind) and deck.left:
                deck.left.insert(0, kind)  # again, after the others of this round
            time.sleep(chance.uniform(0, 0.3))
            if score.tried.total() % HEAL_EVERY == 0:
                bed.heal()
                if not warm[0] and passed_s >= WARM_S:
                    warm = bed.scheduler_uses()
        bed.heal()
        if warm[0] and not set(KILLS_SCHEDULER).intersection(kinds):
            score.grew(warm, bed.scheduler_uses())
        bed.close()
    except KeyboardInterrupt:
        print("It was ended early.", file=sys.stderr)
    finally:
        bed.abandon()
    return score


def bare(folder: Path, seed: int, seconds: float, ground: Ground) -> Score:
    """The same tenants without the hook, and what happens to programs anyway: what they meet then
    is no finding of a soak."""
    score = Score(seed)
    bed = Bed(folder, random.Random(seed), score, ground, shared=False, patience_s=BARE_PATIENCE_S)
    deck = Deck([kind for kind in OF_THE_PROGRAM if kind not in NOT_SURVIVED], bed.chance)
    try:
        bed.begin()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            bring_about(bed, deck.deal())
        bed.heal()
        bed.close()
    finally:
        bed.abandon()
    return score


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="(%(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=[*FAULTS, *LATER], metavar="KIND", help="these kinds alone"
    )
    parser.add_argument(
        "--kinds",
        choices=["default", "all"],
        default="default",
        help="all: also those that nothing withstands yet",
    )
    parser.add_argument(
        "--keep-scheduler", action="store_true", help="it is never killed: does it leak?"
    )
    parser.add_argument("--folder", type=Path, help="keeps all logs there (a temporary one)")
    parser.add_argument(
        "--real",
        action="store_true",
        help="on this machine's GPUs, without what their driver does not survive, after a bare run",
    )
    parser.add_argument(
        "--gib", type=float, default=REAL_GIB, help="used of each GPU with --real (%(default)s)"
    )
    parser.add_argument("--bare-seconds", type=float, default=60, help="(%(default)s)")
    options = parser.parse_args()
    left_out = (KILLS_SCHEDULER if options.keep_scheduler else ()) + (
        NOT_SURVIVED if options.real else ()
    )
    drawn = options.only or [*FAULTS, *(LATER if options.kinds == "all" else ())]
    kinds = [kind for kind in drawn if kind not in left_out]
    ground = real(options.gib) if options.real else None
    with tempfile.TemporaryDirectory(prefix="gpushare-soak-") as temporary:
        folder = options.folder or Path(temporary)
        score = Score(options.seed)
        if ground:
            without_us = bare(folder / "bare", options.seed, options.bare_seconds, ground)
            print(f"Without us:\n{without_us.as_text()}\n", flush=True)
            score.bare = without_us.keys()
        soak(folder, score, options.seconds, kinds, ground)
    print(score.as_text())
    print(json.dumps(score.as_json()))
    return 0 if score.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
