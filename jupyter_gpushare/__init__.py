"""Many Jupyter notebooks share a GPU as if each had it alone."""

__version__ = "0.1.0"
