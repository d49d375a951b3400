"""Rules broken on purpose, to see that a test notices: `make mutate` (`__main__.py`)."""
