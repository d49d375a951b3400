"""The devices of this machine: those of NVML, and those that clients alone know of."""
