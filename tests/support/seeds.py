"""Whether random tests take the examples of the run before, or new ones.

A newcomer's run and CI judge a change, and take the same examples each time. `make test-seeds`
sets GPUSHARE_FRESH_SEEDS and looks for what nobody has seen yet. A seed that fails there becomes a
test.
"""

from __future__ import annotations

import os
import random

FRESH = "GPUSHARE_FRESH_SEEDS" in os.environ


def seed_or(usual: int) -> int:
    """The usual seed, or a new one where new ones are asked for."""
    return random.SystemRandom().getrandbits(32) if FRESH else usual
