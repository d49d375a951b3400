"""`make faults SECONDS=60`: random hand-overs with faults, run after run, each on a machine of its
own with the next seed, until the time is over. Every byte is verified after each hand-over.

The seeds are the same each time, so that a change is judged by what was seen before it; SEED names
another first one."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.end_to_end.handovers import DECK
from tests.end_to_end.test_random_handovers import hand_over_at_random

FIRST_SEED = 2000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="no run begins later")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="of the first")
    options = parser.parse_args()
    began_s, did, faults, runs = time.monotonic(), Counter[str](), 0, 0
    while runs == 0 or time.monotonic() - began_s < options.seconds:
        with tempfile.TemporaryDirectory(prefix="gpushare-faults-") as directory:
            counts = hand_over_at_random(Path(directory), options.seed + runs, DECK).counts
        did.update(counts.did)
        faults += counts.faults
        runs += 1
    print(json.dumps({"runs": runs, "hand_overs": runs * DECK, "faults": faults, "did": did}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
