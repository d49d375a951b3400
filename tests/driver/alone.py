"""Runs one conformance case in this process: `python -m tests.driver.alone MODULE CASE`."""

from __future__ import annotations

import importlib
import sys

from tests.driver.harness import run_alone

module, name = sys.argv[1:]
run_alone(getattr(importlib.import_module(module), name).case)
