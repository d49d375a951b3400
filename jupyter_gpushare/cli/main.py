"""The command line's entry point: parses, delegates to a verb, turns errors into exit statuses."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from jupyter_gpushare.client import (
    ClientError,
    RequestRefused,
    SchedulerUnavailable,
    SchedulerUntrusted,
)
from jupyter_gpushare.version import __version__

from . import (
    audit,
    config,
    devices,
    doctor,
    entries,
    kubelet_plugin,
    preload,
    queue,
    run,
    scheduler,
    simulate,
    status,
    tenants,
    trial,
    view,
)
from . import set as set_verb
from .errors import UsageError

_EPILOG = """exit statuses: 0 done; 1 the doctor found a problem; 2 wrong use; 69 no scheduler
answers; 76 the scheduler refused; 77 not permitted, or the scheduler is not to be trusted. `run`
exits as its command does."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. Errors are one sentence on what is wrong and one on what to do."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == [scheduler.VERB]:
        # Its flags are those of a configurable application, which reads them itself.
        return scheduler.run(arguments[1:])
    parser = make_parser()
    if not arguments:
        parser.print_help()
        return os.EX_OK
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.perform(parsed)
        return code
    except (ClientError, UsageError) as error:
        print(f"jupyter gpushare: {error}", file=sys.stderr)
        return _exit_status(error)
    except BrokenPipeError:
        # The reader of our output has gone (`… | head`); nothing is wrong with us.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return os.EX_OK
    except KeyboardInterrupt:
        return 130


def _exit_status(error: Exception) -> int:
    if isinstance(error, UsageError):
        return 2
    if isinstance(error, SchedulerUnavailable):
        return os.EX_UNAVAILABLE
    if isinstance(error, SchedulerUntrusted):
        return os.EX_NOPERM
    forbidden = isinstance(error, RequestRefused) and error.status == 403
    return os.EX_NOPERM if forbidden else os.EX_PROTOCOL


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jupyter gpushare",
        description="Share a GPU between notebooks, one cell at a time.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for verb in (
        scheduler,
        status,
        queue,
        set_verb,
        config,
        devices,
        tenants,
        entries,
        audit,
        run,
        doctor,
        preload,
        kubelet_plugin,
        view,
        simulate,
        trial,
    ):
        verb.add_parser(verbs)
    return parser


if __name__ == "__main__":
    sys.exit(main())
