"""A program for root of a container that has the tenants' directory: what lies there, and what the
scheduler answers to these requests without a token."""

from __future__ import annotations

LOOK_AROUND = """
import json, os, stat, sys
from pathlib import Path
from jupyter_gpushare.client import RequestRefused, SchedulerClient
here, answers = Path("/run/jupyter-gpushare"), []
for verb, path, body in json.loads(sys.argv[1]):
    try:
        SchedulerClient(here / "http.sock", hub_token="")._ask(verb, path, body)
        answers.append(200)
    except RequestRefused as refused:
        answers.append(refused.status)
kinds = [stat.S_ISSOCK(path.lstat().st_mode) for path in here.rglob("*")]
print(json.dumps([os.getuid(), kinds, answers]))
"""
