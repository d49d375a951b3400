"""What can be wrong with a simulation that somebody asks for."""

from __future__ import annotations


class SimulationError(ValueError):
    """What a person asked for cannot be simulated; the message says why, and what to do."""
