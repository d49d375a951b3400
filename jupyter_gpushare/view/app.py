"""The view's application: its parts, each with its routes, below one prefix."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import tornado.web

from jupyter_gpushare.reports.format import MESSAGE_BYTES_MAX

from . import api, figures
from .api import API, NotFoundHandler, Route, ViewState
from .receiver import Receiver, ReportsHandler

PING_S = 15.0
PARTS: tuple[Callable[[ViewState], list[Route]], ...] = (api.routes, figures.routes)
"""A part of the view gives its routes by such a function; the first pattern that fits counts."""


def make_app(state: ViewState, receiver: Receiver) -> tornado.web.Application:
    """Everything: for people, scripts and nodes."""
    rules = [rule for part in PARTS for rule in part(state)]
    return _application([*rules, _reports(state, receiver)], state)


def make_reports_app(state: ViewState, receiver: Receiver) -> tornado.web.Application:
    """For a port of their own: nodes and nobody else."""
    return _application([_reports(state, receiver)], state)


def _reports(state: ViewState, receiver: Receiver) -> Route:
    """Also at the root: a scheduler on the same machine need not know the hub's prefix."""
    pattern = f"(?:{re.escape(state.prefix)}|/){API}/reports"
    return (pattern, ReportsHandler, {"receiver": receiver})


def _application(rules: list[Route], state: ViewState) -> tornado.web.Application:
    return tornado.web.Application(
        rules,
        default_handler_class=NotFoundHandler,
        default_handler_args={"state": state},
        # Of this start alone: after a restart browsers pass through the hub once more.
        cookie_secret=os.urandom(32),
        xsrf_cookies=False,  # nothing is changed by a request; who may read: oauth.py
        xsrf_cookie_kwargs={"samesite": "Lax"},
        websocket_ping_interval=PING_S,
        websocket_ping_timeout=PING_S,
        websocket_max_message_size=MESSAGE_BYTES_MAX,
        log_function=lambda handler: None,
    )
