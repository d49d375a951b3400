"""Import this in a module with property tests: how Hypothesis runs here.

Machines that run the tests are shared and slow at times, so a slow example says nothing about our
code: there is no deadline for one, and no complaint about slow generation. The seed is printed
with each failure.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared-machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("shared-machine")
