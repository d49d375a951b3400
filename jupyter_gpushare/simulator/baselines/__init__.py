"""Other ways of sharing a device, as models. A model counts where it agrees with what was measured
of the real thing (`tests/simulator/test_baselines.py`)."""
