"""The scheduler's process: everything around the pure core."""
