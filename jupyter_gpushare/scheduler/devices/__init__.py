"""Which devices there are: NVML's, and those that clients alone know of."""
