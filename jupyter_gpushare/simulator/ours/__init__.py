"""The policy of this package: the production scheduler, and simulated hooks that answer it."""
