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
from tests.soak.faults import FAULTS, KILLS_SCHEDULER, bring_about
from tests.soak.score import Score

HEAL_EVERY = 25
WARM_S = 60.0
"""From then on a scheduler that lives on takes no more than it has."""
FIRST_SEED = 3000


def soak(folder: Path, seed: int, seconds: float, kinds: list[str]) -> Score:
    """One run. KeyboardInterrupt ends it early."""
    chance, score = random.Random(seed), Score(seed)
    bed = Bed(folder, chance, score)
    deck = Deck(kinds, chance)
    try:
        bed.begin()
        bed.heal()
        began_s, warm = time.monotonic(), (0, 0)
        while (passed_s := time.monotonic() - began_s) < seconds:
            bring_about(bed, deck.deal())
            time.sleep(chance.uniform(0, 0.5))
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="(%(default)s)")
    parser.add_argument(
        "--only", nargs="+", default=[*FAULTS], choices=[*FAULTS], metavar="KIND", help="(all)"
    )
    parser.add_argument(
        "--keep-scheduler", action="store_true", help="it is never killed: does it leak?"
    )
    parser.add_argument("--folder", type=Path, help="keeps all logs there (a temporary one)")
    options = parser.parse_args()
    kinds = [k for k in options.only if not options.keep_scheduler or k not in KILLS_SCHEDULER]
    with tempfile.TemporaryDirectory(prefix="gpushare-soak-") as folder:
        score = soak(options.folder or Path(folder), options.seed, options.seconds, kinds)
    print(score.as_text())
    print(json.dumps(score.as_json()))
    return 0 if score.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
