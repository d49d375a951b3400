"""For an administrator of JupyterHub: `from jupyter_gpushare.hub import setup; setup(c)`.

Nothing here imports JupyterHub before it is needed: the scheduler imports `auth` as well.
"""

from .configure import setup
from .options import GPUShare, OptionError

__all__ = ["GPUShare", "OptionError", "setup"]
