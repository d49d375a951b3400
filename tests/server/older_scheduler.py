"""`python older_scheduler.py VERSION scheduler …`: the scheduler of a package of that version, as
far as anybody can tell from outside."""

from __future__ import annotations

import sys

import jupyter_gpushare.version

jupyter_gpushare.version.__version__ = sys.argv.pop(1)

from jupyter_gpushare.cli.main import main  # noqa: E402 - its modules keep the version they find

if __name__ == "__main__":
    sys.exit(main())
