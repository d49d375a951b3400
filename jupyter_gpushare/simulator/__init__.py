"""The scheduler in virtual time: what would happen with other settings, devices or policies."""
