"""How Hypothesis runs here; tests/conftest.py loads it.

Machines that run the tests are shared and slow at times, so a slow example says nothing about our
code: there is no deadline for one, and no complaint about slow generation. The examples are those
of the run before (tests/support/seeds.py). Each failure is printed with what repeats it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from .seeds import FRESH

settings.register_profile(
    "shared-machine",
    deadline=None,
    derandomize=not FRESH,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("shared-machine")
