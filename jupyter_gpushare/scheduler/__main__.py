"""`python -m jupyter_gpushare.scheduler`: the scheduler in the foreground."""

import sys

from .app import main

sys.exit(main())
